"""The broker that keeps a REST consumer instance (its group's coordinator) answers the requests for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from tidelog.broker.rest_consumers import requests
from tidelog.broker.rest_consumers.beginnings import Beginnings
from tidelog.broker.rest_consumers.commits import Commits
from tidelog.broker.rest_consumers.instance import Instance
from tidelog.broker.rest_consumers.membership import Membership
from tidelog.broker.rest_consumers.reading import Partitions
from tidelog.broker.rest_consumers.reads import Reads
from tidelog.broker.rest_consumers.registry import Registry
from tidelog.broker.rest_consumers.turns import Turns
from tidelog.groups.patterns import matcher
from tidelog.model.errors import (
    LeaderNotAvailable,
    Overloaded,
    TidelogError,
    UnknownInstance,
)
from tidelog.model.groups import (
    NO_OFFSET,
    ConfigureInstance,
    CreateInstance,
    DeleteInstance,
    FetchOffsets,
    GroupDone,
    InstanceDescription,
    OffsetsAnswer,
    pairs,
)
from tidelog.transport.peer import Answer

ASYNC_COMMITS_MAX: Final = 1_000


@dataclass(eq=False)
class Keeper:
    """Answers requests for the consumer instances that one broker keeps."""

    _registry: Registry
    _turns: Turns
    _reads: Reads
    _commits: Commits
    _membership: Membership
    _beginnings: Beginnings
    _partitions: Partitions
    _topics: Callable[[], Iterable[str]]
    _commits_under_way: dict[asyncio.Task[None], None] = field(default_factory=dict, init=False)

    async def answer(self, request: requests.InstanceRequest) -> Answer:
        """Executes the request and returns its answer. Raises the errors that the docstring of the request's class
        names, and `CoordinatorNotAvailable` if this broker does not coordinate the instance's group.
        """
        match request:
            case requests.OpenInstance():
                return await self._open(request)
            case requests.CloseInstance():
                async with self._turns.of(request) as instance:
                    await self.close(instance, is_requested=True)
            case requests.Subscribe():
                await self._subscribe(request)
            case requests.Assign():
                await self._assign(request)
            case requests.ReadRecords():
                return await self._reads.read(request)
            case requests.CommitPositions():
                return Answer(await self._commit(request))
            case _:
                return await self._answer_small(request)
        return Answer()

    async def _answer_small(self, request: requests.InstanceRequest) -> Answer:
        async with self._turns.of(request) as instance:
            match request:
                case requests.ShowReading():
                    return Answer(requests.Reading(self._subscribed(instance), instance.owned))
                case requests.Seek():
                    await self._beginnings.seek(instance, request)
                case requests.SeekToEdge():
                    await self._beginnings.seek_to_edge(instance, request)
                case requests.FetchCommitted():
                    return Answer(await self._committed(instance, request))
                case _:
                    raise AssertionError(f"no answer is known to {request!r}")
        return Answer()

    # -- its life -----------------------------------------------------------------------------------------------------

    async def _open(self, request: requests.OpenInstance) -> Answer:
        self._registry.require_room()
        home = self._registry.home(request.group)
        instance = Instance(request.group, request.instance, home)
        create = CreateInstance(group=request.group, instance=request.instance, settings=request.settings)
        await instance.ask(GroupDone, create)
        if self._registry.find(request.group, request.instance) is None:
            instance.description = InstanceDescription(request.settings)
            self._registry.used(self._registry.add(instance))
        return Answer()

    async def close(self, instance: Instance, *, is_requested: bool) -> None:
        """Deletes the instance, whose lock the caller holds, and leaves the group, so that its partitions are free at
        once. With auto-commit it first commits all returned records if a client asked (`is_requested`), else only those
        known to be processed.
        """
        positions = instance.positions
        await self._commits.keep_unasked(instance, positions.returned() if is_requested else positions.processed())
        if instance.what.is_subscribed:
            await self._membership.leave(instance)
        await instance.ask(GroupDone, DeleteInstance(group=instance.group, instance=instance.name))
        self._registry.drop(instance, is_deleted=True)

    async def close_quiet(self, instance: Instance) -> None:
        """Deletes an instance that was idle for too long, unless a request for it came while this waited for its
        lock.
        """
        used_s = instance.used_s
        with suppress(UnknownInstance):
            async with instance:
                if instance.description is None:
                    await self._turns.describe(instance)
                if instance.used_s == used_s:
                    await self.close(instance, is_requested=False)

    def is_up_to_date(self, instance: Instance) -> bool:
        """Returns True if the instance needs no heartbeat now: it is no group member, its group has not changed since
        its last heartbeat, or a heartbeat's answer would bring no new epoch, no new assignment and no error.
        """
        is_member = instance.description is not None and instance.what.is_subscribed
        return not (is_member and instance.is_dirty and self._membership.has_news(instance))

    async def refresh(self, instance: Instance) -> None:
        """Sends a heartbeat for the instance's member after a change of its group, unless one was sent meanwhile."""
        async with instance:
            if not self.is_up_to_date(instance):
                await self._membership.speak(instance)
                await self._begin(instance)

    # -- what it reads ------------------------------------------------------------------------------------------------

    async def _subscribe(self, request: requests.Subscribe) -> None:
        async with self._turns.of(request) as instance:
            if not (request.topics or request.pattern):
                await self._commits.keep_unasked(instance, instance.positions.processed())
            was_member = instance.what.is_subscribed
            await self._configure(
                instance, InstanceDescription(instance.what.settings, request.topics, request.pattern)
            )
            if instance.what.is_subscribed:
                await self._membership.speak(instance)
                await self._begin(instance)
            elif was_member:
                await self._membership.leave(instance)
            else:
                instance.positions.have(())
            instance.wake()

    async def _assign(self, request: requests.Assign) -> None:
        for topic, number in pairs(request.partitions):
            with suppress(LeaderNotAvailable):
                self._partitions.partition(topic, number)
        async with self._turns.of(request) as instance:
            await self._configure(instance, InstanceDescription(instance.what.settings, assigned=request.partitions))
            instance.positions.have(pairs(request.partitions))
            await self._begin(instance)
            instance.wake()

    async def _configure(self, instance: Instance, description: InstanceDescription) -> None:
        request = ConfigureInstance(
            group=instance.group,
            instance=instance.name,
            topics=description.topics,
            pattern=description.pattern,
            assigned=description.assigned,
        )
        before, instance.description = instance.description, description
        try:
            await instance.ask(GroupDone, request)
        except BaseException as error:
            is_definite = isinstance(error, TidelogError) and error.definite
            instance.description = before if is_definite else None  # then it is read from its record again
            raise

    async def _begin(self, instance: Instance) -> None:
        """Sets the start positions of new partitions. Errors are dropped: the next read tries again and raises them."""
        with suppress(TidelogError):
            await self._beginnings.find(instance)

    def _subscribed(self, instance: Instance) -> tuple[str, ...]:
        what = instance.what
        if not what.pattern:
            return what.topics
        matches = matcher(what.pattern)
        return tuple(sorted({*what.topics, *(topic for topic in self._topics() if matches(topic))}))

    # -- committed offsets --------------------------------------------------------------------------------------------

    async def _commit(self, request: requests.CommitPositions) -> requests.OffsetsCommitted:
        if not request.is_async:
            return await self._commit_now(request)
        if len(self._commits_under_way) >= ASYNC_COMMITS_MAX:
            raise Overloaded("too many commits that nobody waits for are under way; nothing was done, try again later")
        async with self._turns.of(request):
            pass  # it is there
        task = asyncio.get_running_loop().create_task(self._commit_untold(request))
        self._commits_under_way[task] = None
        task.add_done_callback(self._commits_under_way.pop)
        return requests.OffsetsCommitted()

    async def _commit_untold(self, request: requests.CommitPositions) -> None:
        with suppress(TidelogError):
            await self._commit_now(request)

    async def _commit_now(self, request: requests.CommitPositions) -> requests.OffsetsCommitted:
        async with self._turns.of(request) as instance:
            if request.offsets is None:
                return await self._commits.keep_returned(instance)
            return await self._commits.keep(instance, request.offsets)

    async def _committed(self, instance: Instance, request: requests.FetchCommitted) -> requests.CommittedFetched:
        query = FetchOffsets(group=instance.group, partitions=request.partitions)
        answer = await instance.ask(OffsetsAnswer, query)
        return requests.CommittedFetched(tuple(kept for kept in answer.offsets if kept.offset != NO_OFFSET))

    async def stop(self) -> None:
        """Cancels the asynchronous commits that are under way."""
        tasks = list(self._commits_under_way)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
