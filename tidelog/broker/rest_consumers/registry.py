"""The REST consumer instances in memory on this broker: those of the groups that it coordinates, least recently used
first, so that the first is the next to exceed the idle timeout.

An instance is loaded when a request for it arrives or when this broker becomes its group's coordinator; its idle time
starts then. It is dropped when it is deleted or when this broker stops coordinating its group.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from tidelog.broker.rest_consumers.groups import Coordinator, Groups
from tidelog.broker.rest_consumers.instance import Instance
from tidelog.model.errors import CoordinatorNotAvailable, Overloaded


class Registry:
    """The consumer instances that one broker keeps, at most `instances_max`."""

    def __init__(self, groups: Groups, instances_max: int) -> None:
        self._groups = groups
        self._instances_max = instances_max
        self._instances: dict[tuple[str, str], Instance] = {}
        self._by_group: dict[str, dict[str, Instance]] = {}
        self._dirty: dict[Instance, None] = {}
        self.has_work = asyncio.Event()
        """Set while a group has changed and members of it still have to send a heartbeat."""

    def __len__(self) -> int:
        return len(self._instances)

    @property
    def is_full(self) -> bool:
        """True if the broker has as many instances as `consumer.instances.max` allows."""
        return len(self._instances) >= self._instances_max

    def require_room(self) -> None:
        """Raises `Overloaded` if the broker has as many instances as it may have."""
        if self.is_full:
            raise Overloaded(
                f"broker has {len(self._instances)} consumer instances, as many as consumer.instances.max allows; "
                "delete those that are not used; nothing was done"
            )

    def home(self, group: str) -> Coordinator:
        """Returns the coordinator of a group on this broker. Raises `CoordinatorNotAvailable` if it is not here."""
        coordinator = self._groups.local(group)
        if coordinator is None:
            raise CoordinatorNotAvailable(f"group {group} is not coordinated by this broker; try again")
        if self._note_change not in coordinator.on_changed:
            coordinator.on_changed.append(self._note_change)
        return coordinator

    def get(self, group: str, name: str) -> Instance:
        """Returns the instance and marks it as just used. An instance not in memory is created here, without its
        record, which the caller has to read. Raises `CoordinatorNotAvailable`.
        """
        home = self.home(group)
        instance = self._instances.get((group, name))
        if instance is not None and instance.home is not home:
            self.drop(instance)
            instance = None
        if instance is None:
            instance = self.add(Instance(group, name, home))
        self.used(instance)
        return instance

    def add(self, instance: Instance) -> Instance:
        """Registers an instance on this broker, and returns it."""
        self._instances[instance.group, instance.name] = instance
        self._by_group.setdefault(instance.group, {})[instance.name] = instance
        return instance

    def find(self, group: str, name: str) -> Instance | None:
        """Returns the instance if it is in memory, without marking it as used."""
        return self._instances.get((group, name))

    def used(self, instance: Instance) -> None:
        """Marks an instance as just used: it becomes the last to exceed the idle timeout."""
        key = instance.group, instance.name
        if self._instances.pop(key, None) is not None:
            instance.used_s = asyncio.get_running_loop().time()
            self._instances[key] = instance

    def drop(self, instance: Instance, *, is_deleted: bool = False) -> None:
        """Removes an instance from this broker's memory."""
        key = instance.group, instance.name
        if self._instances.get(key) is instance:
            del self._instances[key]
            members = self._by_group[instance.group]
            del members[instance.name]
            if not members:
                del self._by_group[instance.group]
        self._dirty.pop(instance, None)
        instance.leave(is_deleted=is_deleted)

    def drop_homeless(self) -> None:
        """Drops the instances whose group this broker does not coordinate any more."""
        for group, members in list(self._by_group.items()):
            home = self._groups.local(group)
            for instance in [instance for instance in members.values() if instance.home is not home]:
                self.drop(instance)

    def longest_quiet(self) -> Instance | None:
        """Returns the least recently used instance, or None."""
        return next(iter(self._instances.values()), None)

    # -- changes of groups --------------------------------------------------------------------------------------------

    def _note_change(self, group: str) -> None:
        for instance in self._by_group.get(group, {}).values():
            if instance.description is not None and instance.what.is_subscribed:
                self.note_dirty(instance)

    def note_dirty(self, instance: Instance) -> None:
        """Marks an instance whose group has changed, so that a heartbeat is sent for it soon."""
        instance.is_dirty = True
        self._dirty[instance] = None
        self.has_work.set()

    def take_dirty(self) -> Iterator[Instance]:
        """Yields the instances for which `note_dirty` was called since the last call of this method, each once."""
        self.has_work.clear()
        while self._dirty:
            instance = next(iter(self._dirty))
            del self._dirty[instance]
            yield instance
