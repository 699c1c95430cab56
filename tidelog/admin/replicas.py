"""The admin client's calls about replicas: where they are, which of them lead, and what is damaged or lost."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

import msgspec

from tidelog.admin.calls import Calls, Listed
from tidelog.admin.results import NewAssignment, ReassignmentDescription
from tidelog.transport.errors import decode_answer
from tidelog.transport.losses import AcceptedLoss, LossesJudged
from tidelog.transport.verification import BrokerVerification, ReplicaVerification


class ReplicaCalls(Calls):
    """The admin client's calls about replicas."""

    # -- replicas that move --------------------------------------------------------------------------------------

    async def rebalance(
        self, *, leaving: Sequence[int] = (), validate_only: bool = False, throttle_bytes_per_s: int | None = None
    ) -> list[NewAssignment]:
        """Starts to spread all replicas evenly over the brokers, with as few moves as possible and none on brokers that
        are `leaving`. Returns the new assignments; with `validate_only`, only computes them. Idempotent.

        `throttle_bytes_per_s` bounds the bytes that each broker sends and receives for all current moves, until they
        are in sync; 0 removes the bound, None keeps the present one. It ends with the last move.

        Raises `NotFound` or `InvalidRequest`; then nothing moves.
        """
        document = {
            "leaving": list(leaving),
            "validate_only": validate_only,
            "throttle_bytes_per_s": throttle_bytes_per_s,
        }
        body = await self._change("POST", "/brokers:rebalance", document, safe=True)
        return decode_answer(Listed[NewAssignment], body).data

    async def alter_reassignments(
        self, moves: Sequence[NewAssignment], *, throttle_bytes_per_s: int | None = None
    ) -> None:
        """Starts to move partitions to other replicas (KIP-455), all or none. `throttle_bytes_per_s` is that of
        `rebalance`.

        Raises `UnknownTopic`, `UnknownPartition`, `InvalidRequest`.
        """
        document = {
            "data": [msgspec.to_builtins(move) for move in moves],
            "throttle_bytes_per_s": throttle_bytes_per_s,
        }
        await self._change("POST", "/topics/-/partitions/-/reassignment", document, safe=True)

    async def list_reassignments(self) -> list[ReassignmentDescription]:
        """Returns the partitions whose replicas are being moved, from the metadata of any broker."""
        return (await self._read(Listed[ReassignmentDescription], "/topics/-/partitions/-/reassignment")).data

    async def cancel_reassignments(self) -> None:
        """Cancels all moves: replicas stay where they were. Raises `InvalidRequest` if records would be lost."""
        await self._change("DELETE", "/topics/-/partitions/-/reassignment", safe=True)

    async def elect_preferred_leaders(self) -> int:
        """Makes the first replica of each partition its leader where it is in sync. Returns the number of changed
        leaders."""
        body = await self._change("POST", "/topics/-/partitions:elect", {"election_type": "preferred"}, safe=True)
        return len(decode_answer(Listed[msgspec.Raw], body).data)

    # -- replicas that rot ---------------------------------------------------------------------------------------

    async def verify_replica(
        self,
        topic: str,
        partition: int,
        broker_id: int,
        *,
        offset: int = 0,
        to: int | None = None,
        names_batches: bool = False,
    ) -> ReplicaVerification:
        """Makes a broker read its replica from `offset` up to `to` or the high watermark and check it. The result may
        end earlier: continue at `next_offset`. Damage that is found gets repaired in the background.

        Raises `UnknownTopic`, `UnknownPartition`, `NotFound` if the broker has no replica, `LeaderNotAvailable` if it
        is down.
        """
        path = f"/topics/{quote(topic, safe='')}/partitions/{partition}/replicas/{broker_id}/verification"
        query = f"?offset={offset}" + ("" if to is None else f"&to={to}") + ("&batches=true" if names_batches else "")
        return await self._read(ReplicaVerification, path + query)

    async def verify_broker(self, broker_id: int, *, after: str = "") -> BrokerVerification:
        """Makes a broker read and check its files other than logs: journals, the metadata log, snapshots, and small
        files kept in two copies. Begins behind the files called `after`, the last name in the result of the call
        before, and may end before the last file (`is_last`).

        Raises `NotFound`, `LeaderNotAvailable` if the broker is down, `Overloaded` during another such check.
        """
        return await self._read(BrokerVerification, f"/brokers/{broker_id}/verification?after={quote(after, safe='')}")

    async def accept_loss(
        self,
        topic: str,
        partition: int,
        offsets: tuple[int, int] | None = None,
        *,
        even_though: Sequence[int] = (),
        votes: bool = False,
        validate_only: bool = False,
    ) -> LossesJudged:
        """Gives up records that are damaged on every replica, at the offsets [start, end) or at all: readers skip them
        from then on, even if a copy turns up later. With `votes`, makes a partition without a majority of voters
        continue from what the surviving replicas have. With `validate_only`, only returns the state of the replicas.
        Idempotent.

        Raises `LossRefused` if nothing is damaged, an intact copy is left, or a broker that may have one cannot be
        asked and is not in `even_though`; with `votes`, if the partition has a leader, can elect one, or has changed.
        Also raises `UnknownTopic`, `UnknownPartition`, `OffsetOutOfRange`, `LeaderNotAvailable`.
        """
        document: dict[str, object] = {"even_though": list(even_though), "votes": votes, "validate_only": validate_only}
        if offsets is not None:
            document |= {"start_offset": offsets[0], "end_offset": offsets[1]}
        path = f"/topics/{quote(topic, safe='')}/partitions/{partition}/losses"
        return decode_answer(LossesJudged, await self._change("POST", path, document, safe=True))

    async def list_losses(self, topic: str | None = None) -> list[AcceptedLoss]:
        """Returns the audit records of given-up losses, of the cluster or of one topic. Raises `UnknownTopic`."""
        name = "-" if topic is None else quote(topic, safe="")
        return (await self._read(Listed[AcceptedLoss], f"/topics/{name}/partitions/-/losses")).data
