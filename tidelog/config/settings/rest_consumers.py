"""Settings of REST consumers: consumers over HTTP whose state the broker keeps."""

from __future__ import annotations

from tidelog.config.settings.base import MIB, Settings, setting
from tidelog.config.values import Bytes, CommitSemantics, Count, Milliseconds


class RestConsumerSettings(Settings):
    """Settings of the lifetime and limits of REST consumer instances."""

    consumer_instance_timeout_ms: Milliseconds = setting(
        "consumer.instance.timeout.ms",
        300_000,
        "A REST consumer instance of which nothing was asked for this long is deleted, and its partitions are given to "
        "others.",
        unit="ms",
    )
    consumer_instances_max: Count = setting(
        "consumer.instances.max",
        10_000,
        "REST consumer instances that one broker keeps, of the groups that it coordinates; one more is refused with "
        "503.",
    )
    consumer_request_timeout_ms: Milliseconds = setting(
        "consumer.request.timeout.ms",
        1_000,
        "How long a read of a REST consumer waits for a record, where neither the read nor the instance says. (With "
        "Confluent's proxy it is the most a read may wait, and each one does.)",
        unit="ms",
    )
    consumer_request_max_bytes: Bytes = setting(
        "consumer.request.max.bytes",
        64 * MIB,
        "The most that a read of a REST consumer returns, keys, values and headers counted; one record always is. "
        "However large this is, an answer has no more than 8 MiB: what is left comes with the next one.",
        unit="bytes",
    )
    rest_commit_semantics: CommitSemantics = setting(
        "rest.commit.semantics",
        "processed",
        "What `offset` means where a REST consumer commits. `processed`: the last record that was processed, as with "
        "Confluent's proxy; the offset after it is kept. `next`: the next record to be read, as everywhere in Kafka, "
        "and in Strimzi's bridge. What is asked for later is the next one with both.",
    )
