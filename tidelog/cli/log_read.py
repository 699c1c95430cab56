"""`tidelog log read`: prints the entries of a replicated log, from its running replicas or a stopped one's directory.

Only entries known to be chosen are shown, and only as far as all preceding ones are: a value that a replica has
accepted may never be chosen, and whether a value counts depends on those before it.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from tidelog.broker.consensus.stored import stored_log
from tidelog.cli.data_dir import StoredLog, containing
from tidelog.cli.log_replica import Address, SecretFile, Servers, make_client, parse_servers
from tidelog.cli.log_slots import Objects, entry_objects, payload_objects
from tidelog.cli.terminal import EXIT_ERROR, CommandError, UsageError, counted
from tidelog.model.errors import DamagedBatch
from tidelog.replication.paxos.state import Metadata
from tidelog.standalone.client import LearnedEntry, LogClient
from tidelog.standalone.entries import LogView
from tidelog.storage.slot_store import SlotStore

SHOWN_MAX = 120
"""Maximum characters of an entry in text output."""


@dataclass(slots=True)
class Range:
    """The range of positions to print, `end` exclusive, and a record of what was missing."""

    begin: int | None
    end: int | None
    as_json: bool
    lacking: list[str] = field(default_factory=list)
    _unreadable: list[int] = field(default_factory=list)

    def within(self, begin: int, end: int) -> range:
        """Returns the positions to print of a log from `begin` to before `end`; records the requested ones outside of
        it."""
        if self.begin is not None and self.begin < begin:
            gone = min(begin, end if self.end is None else self.end) - 1
            self.lacking.append(f"positions {self.begin} to {gone} are truncated: the log begins at {begin}")
        if self.end is not None and self.end > end:
            first = max(end, self.begin or 0)
            last = self.end - 1
            self.lacking.append(f"positions {first} to {last} are not known to be chosen: the log ends at {end}")
        low, high = (begin if self.begin is None else self.begin), (end if self.end is None else self.end)
        return range(max(low, begin), min(high, end))

    def show(self, learned: LearnedEntry, objects: Objects) -> None:
        """Prints an entry and the contents of its payload."""
        entry = learned.entry
        if entry.payload_bytes < 0:
            self._unreadable.append(entry.position)
        if self.as_json:
            print(json.dumps(_as_json(learned, objects), ensure_ascii=False))
            return
        word = "void" if entry.is_void else ("" if entry.payload_bytes >= 0 else "UNREADABLE")
        content = " ".join(json.dumps(item, ensure_ascii=False) for item in objects)
        shown = content if len(content) <= SHOWN_MAX else content[:SHOWN_MAX] + "..."
        print(f"{entry.position:>8} {entry.kind:<8} {word}{shown}".rstrip())

    def finish(self) -> None:
        """Raises an error about the positions that are missing, if any."""
        if self._unreadable:
            shown = ", ".join(map(str, self._unreadable[:20])) + (" ..." if len(self._unreadable) > 20 else "")
            self.lacking.append(f"{counted(len(self._unreadable), 'entry')} cannot be read, at {shown}")
        for sentence in self.lacking:
            print(f"error: {sentence}", file=sys.stderr)
        if self.lacking:
            raise typer.Exit(EXIT_ERROR)


def read(
    path: Annotated[
        str | None,
        typer.Option("--path", metavar="DIR", help="The directory of a replica that is stopped.", show_default=False),
    ] = None,
    servers: Servers = None,
    begin: Annotated[
        int | None, typer.Option("--from", min=0, metavar="P", help="First position.", show_default=False)
    ] = None,
    end: Annotated[
        int | None, typer.Option("--to", min=0, metavar="Q", help="Last position, included.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object a line.")] = False,
    secret_file: SecretFile = None,
) -> None:
    """Print the entries of a replicated log between two positions.

    With --servers, from running replicas; with --path, from a stopped one. DIR may also be that of a partition with
    commit.protocol=paxos, or of a broker's metadata log. Entries not known to be chosen are left out. Requested entries
    that are truncated, unknown or damaged are reported on standard error, with exit status 1.

    \b
    Examples:
      tidelog log read --path r1
      tidelog log read --servers a:5050,b:5050,c:5050 --from 100 --to 199 --json
    """
    if (path is None) == (servers is None):
        raise UsageError("say either --path, for a stopped replica, or --servers, for those that run")
    if begin is not None and end is not None and end < begin:
        raise UsageError(f"--to {end} is before --from {begin}")
    requested = Range(begin, None if end is None else end + 1, as_json)
    if path is not None:
        _read_stopped(path, requested)
    else:
        asyncio.run(_read_running(parse_servers(servers), secret_file, requested))
    requested.finish()


def _as_json(learned: LearnedEntry, objects: Objects) -> dict[str, Any]:
    entry = learned.entry
    document: dict[str, Any] = {
        "position": entry.position,
        "kind": entry.kind,
        "birth": entry.birth,
        "offset": entry.offset,
        "count": entry.count,
        "is_void": entry.is_void,
        "is_readable": entry.payload_bytes >= 0,
    }
    return document | ({"content": objects} if objects else {})


# -- a stopped replica -------------------------------------------------------------------------------------------------


def _read_stopped(path: str, requested: Range) -> None:
    with containing(path) as logs:
        log = next((log for log in logs if log.has_slots), None)
        if log is None:
            raise CommandError(f"{path} is no replica of a Paxos log; `tidelog log dump {path}` shows what is there")
        for learned in _learned(log, requested):
            objects = [] if learned.payload is None else payload_objects(log, learned.entry.kind, learned.payload)
            requested.show(learned, objects)


def _learned(log: StoredLog, requested: Range) -> Iterator[LearnedEntry]:
    store, stored = SlotStore.look(log.files, log.directory, log.identity)
    try:
        if stored.is_amnesiac:
            requested.lacking.append(f"this replica has lost entries: {stored.report.findings[-1]}")
        slots = stored_log(stored, Metadata(""))
        view = LogView(slots.floor, {slot.position: slot for slot in slots.slots})
        view.extend(slots.floor)
        for position in requested.within(view.begin, view.end):
            digest = view.slot(position).value.digest
            payload = _payload(store, position, digest) if digest else None
            yield LearnedEntry(view.entry(position, payload), payload)
        _tell_open(sum(slot.position >= view.end for slot in slots.slots), view.end)
    finally:
        store.close()


def _payload(store: SlotStore, position: int, digest: bytes) -> bytes | None:
    try:
        return store.payload(position, digest)
    except DamagedBatch:
        return None


def _tell_open(count: int, end: int) -> None:
    if count:
        print(
            f"notice: from {end} on, {counted(count, 'position')} may be chosen or not; the other replicas know",
            file=sys.stderr,
        )


# -- replicas that run -------------------------------------------------------------------------------------------------


async def _read_running(servers: Sequence[Address], secret_file: str | None, requested: Range) -> None:
    client = make_client(servers, secret_file)
    try:
        await _read_from(client, servers, requested)
    finally:
        await client.close()


async def _read_from(client: LogClient, servers: Sequence[Address], requested: Range) -> None:
    extents = await client.extents()
    if not extents:
        refused = f"; a server refuses this program: {client.refusal}" if client.refusal else ""
        raise CommandError(f"no server answers that knows a log{refused}")
    if len(extents) < len(servers):
        silent = counted(len(servers) - len(extents), "server")
        print(f"notice: {silent} did not answer; the log may go on behind what is shown", file=sys.stderr)
    best = sorted(extents, key=lambda server: -extents[server].end)
    positions = requested.within(extents[best[0]].begin, extents[best[0]].end)
    following = positions.start
    async for learned in client.read(best, positions.start, positions.stop):
        requested.show(learned, entry_objects(learned.entry.kind, learned.payload) if learned.payload else [])
        following = learned.entry.position + 1
    if following < positions.stop:  # the log was truncated meanwhile, or its servers have stopped
        requested.lacking.append(
            f"positions {following} to {positions.stop - 1} are not to be had from any server any more"
        )
