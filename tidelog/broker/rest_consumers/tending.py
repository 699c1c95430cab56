"""Background work for consumer instances: heartbeats of members whose group has changed, and deletion of idle
instances.

One task serves all instances of a broker; it checks them once a second, or at once after a change of a group.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

import structlog

from tidelog.broker.rest_consumers.groups import Coordinator, Groups
from tidelog.broker.rest_consumers.instance import ASK_S, Instance
from tidelog.broker.rest_consumers.keeper import Keeper
from tidelog.broker.rest_consumers.registry import Registry
from tidelog.model.errors import TidelogError
from tidelog.model.groups import InstancesListed, ListInstances

LOOK_S: Final = 1.0
PACE_S: Final = 0.05
"""Seconds between two rounds of heartbeats. When many members join or leave in a row, one heartbeat covers several
changes.
"""
AT_ONCE: Final = 32
"""Maximum number of heartbeats sent at the same time, so that an instance whose lock is taken does not hold up all
others.
"""

logger = structlog.get_logger("tidelog.rest-consumers")


@dataclass(eq=False)
class Tending:
    """The background work for the instances of one broker. `run` is its task."""

    _groups: Groups
    _registry: Registry
    _keeper: Keeper
    _instance_timeout_s: float
    _adopted: list[Coordinator] = field(default_factory=list, init=False)

    async def run(self) -> None:
        """Sends due heartbeats, loads and drops instances, and deletes idle ones, until it is cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._registry.has_work.wait()
            await self._hear()
            self._registry.drop_homeless()
            await self._adopt()
            await self._close_quiet()
            await asyncio.sleep(PACE_S)

    async def _hear(self) -> None:
        dirty = (instance for instance in self._registry.take_dirty() if not self._keeper.is_up_to_date(instance))
        while at_once := list(islice(dirty, AT_ONCE)):
            await asyncio.gather(*[self._refresh(instance) for instance in at_once])

    async def _refresh(self, instance: Instance) -> None:
        """Sends the heartbeat of an instance whose group has changed. If it fails, the instance's next request sends
        it.
        """
        with suppress(TidelogError):
            await self._keeper.refresh(instance)

    async def _adopt(self) -> None:
        """Loads the instances of coordinators that are new on this broker, so that their idle timeout runs."""
        here = list(self._groups.loaded)
        self._adopted = [adopted for adopted in self._adopted if any(adopted is coordinator for coordinator in here)]
        for coordinator in here:
            if any(coordinator is adopted for adopted in self._adopted):
                continue
            try:
                deadline_s = asyncio.get_running_loop().time() + ASK_S
                listed = await coordinator.ask(ListInstances(partition=coordinator.partition.partition), deadline_s)
            except TidelogError:
                continue  # it is looked at again
            self._adopted.append(coordinator)
            assert isinstance(listed, InstancesListed)
            for entry in listed.instances:
                with suppress(TidelogError):
                    if self._registry.find(entry.group, entry.instance) is None:
                        self._registry.get(entry.group, entry.instance)

    async def _close_quiet(self) -> None:
        now_s = asyncio.get_running_loop().time()
        while True:
            instance = self._registry.longest_quiet()
            if instance is None or instance.used_s + self._instance_timeout_s > now_s:
                return
            if instance.is_waiting:
                self._registry.used(instance)
                continue
            try:
                await self._keeper.close_quiet(instance)
            except TidelogError as error:
                logger.info("a quiet REST consumer could not be deleted", instance=instance.name, reason=error.message)
                self._registry.used(instance)
