"""Names of events that must happen now and then in many runs of a mix; otherwise its success proves little."""

from __future__ import annotations

from collections.abc import Mapping

ALWAYS = (
    "a batch is committed",
    "a batch is refused",
    "a fetch of another epoch is refused",
    "a leader takes office",
    "a leader takes office with an old high watermark",
    "a message is overtaken",
    "an answer about a set is given up",
    "an in-sync set: fenced leader epoch",
    "an in-sync set: ineligible replica",
    "an in-sync set: invalid update version",
    "an in-sync set: none",
    "an uncommitted tail is truncated",
    "another leads",
    "logs diverge",
    "the ELR elects",
    "unflushed batches are lost",
)
"""Events that every mix must reach."""

NETWORK = ("a direction is cut", "a message comes twice", "a message is lost")
CRASHES = (
    "a disk is wiped",
    "a fetch of an earlier life is refused",
    "a log is started over",
    "a process is killed",
    "a process outlives its successor's start",
    "an unclean election",
    "an unclean restart is noticed",
)
CONTROL = (
    "a replica is taken away and given back",
    "an in-sync set: new leader elected",
    "replicas begin to move",
    "the durability of acknowledgements changes",
    "the minimum of in-sync replicas changes",
)
DISK = ("a log is started over", "an fsync fails")
ROT = (
    "all lose their power",
    "a batch rots, and was committed",
    "a batch rots, and was not committed",
    "a damaged batch is asked for",
    "a damaged batch is repaired",
    "a damaged end is truncated",
    "a leader has to settle first",
)
DECAY = (
    "a batch rots on several disks",
    "a leader begins behind what another knows to be committed",
    "all that have the rows are in sync, though copies are lost",
    "the last copies are lost",
)

SOMETIMES: Mapping[str, tuple[str, ...]] = {
    "network": (*ALWAYS, *NETWORK),
    "crashes": (*ALWAYS, *CRASHES),
    "control": (*ALWAYS, *CONTROL),
    "disk": (*ALWAYS, *DISK),
    "rot": (*ALWAYS, *ROT),
    "decay": (*ALWAYS, *DECAY),
    "everything": (*ALWAYS, *NETWORK, *CRASHES, *CONTROL, *DISK, *ROT),
    "swarm": (*ALWAYS, *NETWORK, *CRASHES, *CONTROL, *DISK, *ROT),
}
