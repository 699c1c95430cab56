"""The admin client's calls about topics: their partitions and settings, and the offsets of their records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import quote

import msgspec

from tidelog.admin.calls import Calls, Listed
from tidelog.admin.results import ConfigDescription, NewTopic, TopicDescription, TopicPlacement
from tidelog.model.errors import InvalidRequest, TopicExists, UnknownTopic
from tidelog.model.ids import TopicPartition
from tidelog.transport.errors import decode_answer
from tidelog.transport.metadata import TopicMetadata
from tidelog.transport.offsets import OffsetQuery, PartitionOffsets, fetch_offsets


class TopicCalls(Calls):
    """The admin client's calls about topics."""

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        replication_factor: int | None = None,
        replicas_assignments: Mapping[int, Sequence[int]] | None = None,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
        exist_ok: bool = False,
    ) -> TopicPlacement:
        """Creates a topic; all live brokers know it when this returns. With `validate_only` nothing is created.

        With `exist_ok` an existing topic of this name is returned unchanged, whatever its settings. Raises
        `TopicExists`, `InvalidRequest` for invalid parameters, or `LeaderNotAvailable` if too few brokers are live to
        lead its partitions, and stay so.
        """
        topic = NewTopic(
            topic_name=name,
            partitions_count=partitions,
            replication_factor=replication_factor,
            replicas_assignments=replicas_assignments,
            configs=configs or {},
        )
        return await self._create(topic, validate_only=validate_only, exist_ok=exist_ok)

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False, exist_ok: bool = False
    ) -> list[TopicPlacement]:
        """Creates topics one after the other. The first error ends this; topics created before it stay."""
        return [await self._create(topic, validate_only=validate_only, exist_ok=exist_ok) for topic in topics]

    async def _create(self, topic: NewTopic, *, validate_only: bool, exist_ok: bool) -> TopicPlacement:
        try:
            return await self._ask_to_create(topic, validate_only=validate_only)
        except InvalidRequest as error:
            existing = await self._existing(topic.topic_name)
            if existing is None:
                raise
            if not exist_ok:
                raise TopicExists(f"topic {topic.topic_name} exists already") from error
            return TopicPlacement.of(existing)

    async def _existing(self, name: str) -> TopicMetadata | None:
        """Returns the topic of this name; None if there is none or the name is invalid."""
        try:
            topics = (await self._session.metadata(name)).topics
        except InvalidRequest:
            return None
        return next((topic for topic in topics if topic.name == name), None)

    async def _ask_to_create(self, topic: NewTopic, *, validate_only: bool) -> TopicPlacement:
        configs = [{"name": name, "value": value} for name, value in topic.configs.items()]
        document = {**msgspec.structs.asdict(topic), "configs": configs, "validate_only": validate_only}
        given = {name: value for name, value in document.items() if value is not None}
        return decode_answer(TopicPlacement, await self._change("POST", "/topics", given, safe=validate_only))

    async def delete_topic(self, name: str) -> None:
        """Deletes a topic and all its records. Raises `UnknownTopic`."""
        await self._change("DELETE", f"/topics/{quote(name, safe='')}", safe=False)

    async def list_topics(self, *, include_internal: bool = False) -> list[str]:
        """Returns the names of all topics, sorted."""
        metadata = await self._session.all_metadata()
        return sorted(topic.name for topic in metadata.topics if include_internal or not topic.is_internal)

    async def describe_topic(self, name: str) -> TopicDescription:
        """Returns a topic and the state of its partitions. Raises `UnknownTopic`."""
        return (await self.describe_topics([name]))[0]

    async def describe_topics(self, names: Sequence[str] | None = None) -> list[TopicDescription]:
        """Returns these topics in this order, or all topics. Raises `UnknownTopic`."""
        if names is None:
            return [TopicDescription.of(topic) for topic in (await self._session.all_metadata()).topics]
        topics = {topic.name: topic for topic in (await self._session.metadata(*names)).topics}
        missing = [name for name in names if name not in topics]
        if missing:
            raise UnknownTopic(f"topic {missing[0]!r} does not exist")
        return [TopicDescription.of(topics[name]) for name in names]

    async def create_partitions(self, name: str, total: int) -> TopicPlacement:
        """Increases a topic's partitions to `total`. This changes the partitions of keys: records of one key may end up
        in two partitions. Raises `UnknownTopic`, `InvalidRequest`."""
        body = await self._change("PATCH", f"/topics/{quote(name, safe='')}", {"partitions_count": total}, safe=False)
        return decode_answer(TopicPlacement, body)

    # -- settings ------------------------------------------------------------------------------------------------

    async def describe_configs(self, topic: str) -> list[ConfigDescription]:
        """Returns all settings of a topic, with their sources. Raises `UnknownTopic`."""
        return (await self._read(Listed[ConfigDescription], f"/topics/{quote(topic, safe='')}/configs")).data

    async def alter_configs(
        self, topic: str, changes: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """Changes settings of a topic, all or none; None restores the default. Raises `UnknownTopic`,
        `InvalidRequest`."""
        data = [
            {"name": name, "operation": "DELETE"} if value is None else {"name": name, "value": value}
            for name, value in changes.items()
        ]
        document = {"data": data, "validate_only": validate_only}
        await self._change("POST", f"/topics/{quote(topic, safe='')}/configs:alter", document, safe=True)

    # -- offsets -------------------------------------------------------------------------------------------------

    async def list_offsets(
        self, partitions: Sequence[TopicPartition] | Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, PartitionOffsets]:
        """Returns the start and end offsets of partitions; with a mapping to timestamps (ms), also the first offset
        with that time or a later one.

        Entries of partitions whose offsets are unknown have an `error`; the call itself does not fail for them.
        """
        times: Mapping[TopicPartition, int | None] = (
            partitions if isinstance(partitions, Mapping) else dict.fromkeys(partitions)
        )
        queries = [OffsetQuery(topic, partition, time) for (topic, partition), time in times.items()]
        return {entry.key: entry for entry in await fetch_offsets(self._session, queries)}

    async def delete_records(self, topic: str, partition: int, before_offset: int) -> None:
        """Deletes the committed records of a partition before an offset, on all replicas (Kafka: DeleteRecords). When
        it returns, the log start offset is `before_offset` or larger. Idempotent.

        Raises `UnknownTopic`, `UnknownPartition`, `OffsetOutOfRange` beyond the high watermark; and
        `TimedOutAfterAppend` if the records may be deleted later.
        """
        path = f"/topics/{quote(topic, safe='')}/partitions/{partition}/records:delete"
        await self._change("POST", path, {"before_offset": before_offset}, safe=True, tells_timeout=True)
