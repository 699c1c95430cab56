"""The lock of a consumer instance during a request, with the steps that begin each: find it, read its record, send a
due heartbeat.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tidelog.broker.rest_consumers.instance import Instance
from tidelog.broker.rest_consumers.membership import Membership
from tidelog.broker.rest_consumers.registry import Registry
from tidelog.broker.rest_consumers.requests import InstanceRequest
from tidelog.model.errors import FencedMember, UnknownInstance, UnknownMember
from tidelog.model.groups import DescribeInstance, InstanceDescription, pairs


class Turns:
    """Locks instances for requests, for all instances of a broker."""

    def __init__(self, registry: Registry, membership: Membership) -> None:
        self._registry = registry
        self._membership = membership

    @asynccontextmanager
    async def of(self, request: InstanceRequest) -> AsyncIterator[Instance]:
        """Locks the instance of a request and yields it: its record is read if that has not been done, and a due
        heartbeat is sent. An instance of another principal raises `UnknownInstance`, and does not count as used.
        """
        registered = self._registry.find(request.group, request.instance)
        if registered is not None:
            registered.require_owner(request.caller)
        instance = self._registry.get(request.group, request.instance)
        async with instance:
            if instance.description is None:
                await self.describe(instance)
            instance.require_owner(request.caller)
            if self._membership.is_due(instance):
                await self._membership.speak(instance)
            try:
                yield instance
            except (UnknownMember, FencedMember):
                instance.is_dirty = True  # it joins again, in its next turn
                raise

    async def describe(self, instance: Instance) -> None:
        """Reads the instance's settings, subscription and assignment from its record. Raises `UnknownInstance` if there
        is none.
        """
        request = DescribeInstance(group=instance.group, instance=instance.name)
        try:
            instance.description = await instance.ask(InstanceDescription, request)
        except UnknownInstance:
            self._registry.drop(instance, is_deleted=True)
            raise
        if instance.what.assigned:
            instance.positions.have(pairs(instance.what.assigned))
