"""The instances that live on this broker: those of the groups that it coordinates. The one that was quiet longest is
the first, so that looking for those that are quiet for too long is looking at the first.

Instances come to life when something is asked of them, or when this broker becomes the coordinator of their group; from
then on they have their whole time to be quiet. They leave when they are deleted, and with their coordinator.
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
        """Set while there are instances whose group has changed."""

    def __len__(self) -> int:
        return len(self._instances)

    @property
    def is_full(self) -> bool:
        """No more can be created here."""
        return len(self._instances) >= self._instances_max

    def require_room(self) -> None:
        """Raises `Overloaded`."""
        if self.is_full:
            raise Overloaded(
                f"broker has {len(self._instances)} consumer instances, as many as consumer.instances.max allows; "
                "delete those that are not used; nothing was done"
            )

    def home(self, group: str) -> Coordinator:
        """The coordinator of a group, here. Raises `CoordinatorNotAvailable`."""
        found = self._groups.local(group)
        if found is None:
            raise CoordinatorNotAvailable(f"group {group} is not coordinated by this broker; try again")
        if self._note_change not in found.on_changed:
            found.on_changed.append(self._note_change)
        return found

    def get(self, group: str, name: str) -> Instance:
        """The instance, used now; a new one, that is to be read from its record, if it has not come to life here.
        Raises `CoordinatorNotAvailable`."""
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
        """It lives here."""
        self._instances[instance.group, instance.name] = instance
        self._by_group.setdefault(instance.group, {})[instance.name] = instance
        return instance

    def find(self, group: str, name: str) -> Instance | None:
        """The instance, if it has come to life here; it is not used thereby."""
        return self._instances.get((group, name))

    def used(self, instance: Instance) -> None:
        """Something is asked of it: it is the last one to be quiet for too long."""
        key = instance.group, instance.name
        if self._instances.pop(key, None) is not None:
            instance.used_s = asyncio.get_running_loop().time()
            self._instances[key] = instance

    def drop(self, instance: Instance, *, is_deleted: bool = False) -> None:
        """It lives here no more."""
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
        """Drops the instances whose coordinator is not here any more."""
        for group, members in list(self._by_group.items()):
            home = self._groups.local(group)
            for instance in [one for one in members.values() if one.home is not home]:
                self.drop(instance)

    def longest_quiet(self) -> Instance | None:
        """The first that will have been quiet for too long, if it is not asked anything."""
        return next(iter(self._instances.values()), None)

    # -- changes of groups --------------------------------------------------------------------------------------------

    def _note_change(self, group: str) -> None:
        for instance in self._by_group.get(group, {}).values():
            if instance.description is not None and instance.what.is_subscribed:
                self.note_dirty(instance)

    def note_dirty(self, instance: Instance) -> None:
        """Notes that the instance's member has to send a heartbeat soon."""
        instance.is_dirty = True
        self._dirty[instance] = None
        self.has_work.set()

    def take_dirty(self) -> Iterator[Instance]:
        """Yields the instances whose group has changed, each once."""
        self.has_work.clear()
        while self._dirty:
            instance = next(iter(self._dirty))
            del self._dirty[instance]
            yield instance
