"""Settings of clients' requests, and their bounds."""

from __future__ import annotations

from tidelog.config.settings.base import MIB, Settings, setting
from tidelog.config.values import Bytes, Count, Milliseconds, ShownBytes


class RequestSettings(Settings):
    """Settings that limit clients' requests."""

    request_timeout_ms_max: Milliseconds = setting(
        "request.timeout.ms.max",
        30_000,
        "The longest a request may wait, for a commit or for data; a client that asks for more gets this.",
        unit="ms",
    )
    request_queue_wait_ms_max: Milliseconds = setting(
        "request.queue.wait.ms.max",
        100,
        "How long a client's request should wait for its turn. When all of a class (produces, reads, reads that wait "
        "for data, administration) have waited for longer for request.queue.interval.ms, those that have are refused "
        "with 503 and Retry-After, until none had to be for as long again. Heartbeats and commits of groups, and the "
        "metadata, never are. (Not in Kafka.)",
        unit="ms",
    )
    request_queue_interval_ms: Milliseconds = setting(
        "request.queue.interval.ms",
        1_000,
        "For how long requests may wait over request.queue.wait.ms.max: a burst that is over sooner is served. (Not in "
        "Kafka.)",
        unit="ms",
    )
    loop_lag_ms_max: Milliseconds = setting(
        "loop.lag.ms.max",
        200,
        "How late the timers of a broker's event loop may fire (the median of the last nine looks) before it brakes: "
        "from here on reads that wait for data are refused with 503, at twice this all reads and administration, at "
        "four times produces. Each level ends at half of what it began at. (Not in Kafka.)",
        unit="ms",
    )
    fetch_max_bytes: Bytes = setting(
        "fetch.max.bytes",
        57_671_680,
        "The most data one read returns, whatever `max_bytes` says; a first batch that is larger is returned whole.",
        unit="bytes",
    )
    http_head_timeout_ms: Milliseconds = setting(
        "http.head.timeout.ms",
        10_000,
        "A request's line and headers that take longer to arrive, from their first byte on, are refused with 408.",
        unit="ms",
    )
    http_body_timeout_ms: Milliseconds = setting(
        "http.body.timeout.ms", 10_000, "A request body that takes longer to arrive is refused with 408.", unit="ms"
    )
    http_linger_timeout_ms: Milliseconds = setting(
        "http.linger.timeout.ms",
        30_000,
        "How long the rest of a body that is refused is read, and dropped, so that its client gets the answer and no "
        "reset. It ends sooner when the client closes, or sends nothing for five seconds. (nginx: lingering_time.)",
        unit="ms",
    )
    http_linger_bytes_max: Bytes = setting(
        "http.linger.bytes.max",
        64 * MIB,
        "The most that is read so of one body; who sends on gets a reset.",
        unit="bytes",
    )
    http_request_bytes_max: Bytes = setting(
        "http.request.bytes.max", 5 * MIB, "The largest JSON body; a larger one is refused with 413.", unit="bytes"
    )
    http_record_bytes_max: ShownBytes = setting(
        "http.record.bytes.max",
        8 * MIB,
        "The longest record that is shown as JSON; a longer one is refused with 406, and can be read as a raw batch. "
        "The event loop is held for some 2 ms for each MiB of it.",
        unit="bytes",
    )
    http_batches_bytes_max: Bytes = setting(
        "http.batches.bytes.max",
        32 * MIB,
        "The largest body of raw record batches; a larger one is refused with 413.",
        unit="bytes",
    )
    http_batches_partitions_max: Count = setting(
        "http.batches.partitions.max",
        1_000,
        "The most partitions that one request may send record batches to; one with more is refused with 422.",
    )
    http_body_budget_bytes: Bytes = setting(
        "http.body.budget.bytes",
        256 * MIB,
        "Memory for all request bodies that are in the broker at one time; a request beyond it is refused with 503, "
        "before its body is read if that has a Content-Length.",
        unit="bytes",
    )
    http_connections_max: Count = setting(
        "http.connections.max",
        2000,
        "Client connections open at one time. One more gets the place of one at rest, or is refused with 503. "
        "/healthz, /readyz and /metrics have places of their own beyond these. (Kafka: "
        "listener.name.NAME.max.connections.)",
    )
    http_ops_connections_max: Count = setting(
        "http.ops.connections.max", 32, "The same at http.ops.listener; clients' connections are not among them."
    )
    http_address_connections_max: Count | None = setting(
        "http.address.connections.max",
        None,
        "Of these, how many one client address may have; one more gets the place of one of them that is at rest, or is "
        "refused with 503. Default: as many as there are, since a proxy or a load balancer is one address. (Kafka: "
        "max.connections.per.ip.)",
    )

    quota_buckets_max: Count = setting(
        "quota.buckets.max",
        10_000,
        "Whose use of their quotas this broker remembers: users, client ids and addresses. Of more, the one that was "
        "not heard of for longest is forgotten, and begins anew with a second's worth.",
    )
