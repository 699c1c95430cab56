"""Whatever is sent, to whatever route: an answer in the right shape, and never a 500."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.integration.http.conftest import Site, simulated
from tests.integration.http.wire import Wire, head
from tidelog.broker.http.route import Route
from tidelog.broker.http.routes import ROUTES
from tidelog.controller.access_commands import StoreToken
from tidelog.model.batch_codec import encode_batch
from tidelog.model.credentials import Token
from tidelog.model.partition_batches import PARTITION_BATCHES_TYPE, batch_table

METHODS = sorted({route.method for route in ROUTES})
GOOD = {
    "user": "alice",
    "token_id": "x",
    "cluster_id": "CLUSTER",
    "topic": "t",
    "partition": "0",
    "broker_id": "1",
    "name": "retention.ms",
    "group": "g",
    "consumer": "i",
    "instance": "i",
}
SEGMENTS = st.sampled_from(
    ["t", "u", "none", "0", "1", "-1", "9223372036854775808", "..", "%2e%2e", "%2f", "%00",
     "%", "n" * 250, "1e9", "", "-",
     "\u00e9", "*"]
)  # fmt: skip
NAMES = st.sampled_from(
    ["offset", "to", "timestamp", "acks", "async", "timeout", "timeout_ms", "max_bytes", "min_bytes",
     "wait_ms", "replica",
     "topics", "offset_type", "x"]
)  # fmt: skip
VALUES = st.sampled_from(
    ["", "0", "1", "-1", "5", "true", "false", "all", "earliest", "latest", "local", "1e400", "%zz", "%00", "+4", "t,u",
     "9223372036854775807", "9223372036854775808", "%D9%A4"]
)  # fmt: skip
QUERIES = st.lists(st.tuples(NAMES, VALUES), max_size=3).map(lambda pairs: [f"{name}={value}" for name, value in pairs])
OFFSETS = st.sampled_from([["offset=0"], ["offset=latest"], ["offset=99999"], []])
CONTENT_TYPES = st.sampled_from(
    ["application/json", "application/vnd.kafka.json.v2+json", "application/vnd.tidelog.batches",
     PARTITION_BATCHES_TYPE, "text/plain", "\x7f",
     ";;",
     "application/vnd.kafka.binary.v2+json", "a/b;charset=x"]
)  # fmt: skip
KEYS = st.sampled_from(
    ["records", "value", "key", "partition", "entries", "id", "type", "data", "partitions", "topic", "topic_name", "x",
     "partitions_count", "configs", "name", "headers", "timestamp", "wait_ms", "validate_only"]
)  # fmt: skip
LEAVES = st.none() | st.booleans() | st.sampled_from([0, 1, -1, 2**63, 1e300, "", "t", "AA==", "JSON", "BINARY", "5"])
DOCUMENTS = st.recursive(
    LEAVES, lambda it: st.lists(it, max_size=3) | st.dictionaries(KEYS, it, max_size=4), max_leaves=12
)
BATCH = bytes(encode_batch([(1, None, b"x")]))
ACL = (
    b'{"resource_type":"TOPIC","resource_name":"t","pattern_type":"LITERAL","principal":"User:a","operation":"READ",'
    b'"permission":"ALLOW"}'
)
GOOD_QUERIES = {
    "GET acls:check": "?resource_type=TOPIC&resource_name=t&principal=User:a&operation=READ",
    "DELETE acls": "?resource_type=TOPIC&pattern_type=LITERAL&operation=READ&permission=ALLOW",
}
GOOD_BODIES = {
    "feature-level:raise": b'{"validate_only":true}',
    "acls": ACL,
    "acls:batch": b'{"data":[' + ACL + b"]}",
    "quotas:alter": b'{"data":[{"user":"bob","rates":{"request_rate":100000}}]}',
    "users": b'{"user_name":"bob","password":"12345678"}',
    "password": b'{"password":"87654321"}',
    "tokens": b'{"principal":"User:bob"}',
    "batches": BATCH,
    "/batches": batch_table([("t", 0, len(BATCH))]) + BATCH,
    "brokers:rebalance": b'{"validate_only":true}',
    "configs:alter": b'{"data":[{"name":"segment.ms","value":"9"}]}',
    "losses": b'{"validate_only":true}',
    "offsets": b'{"partitions":[{"topic":"t","partition":0}]}',
    "partitions:elect": b'{"election_type":"preferred"}',
    "reassignment": b'{"data":[{"topic_name":"t","partition_id":0,"replicas":[1]}]}',
    "records": b'{"value":{"type":"JSON","data":1}}' * 3,
    "records:delete": b'{"before_offset":0}',
    "records:batch": b'{"entries":[{"id":"a","value":{"type":"STRING","data":"x"}},{"id":"b","value":{"type":"x"}}]}',
    "topics": b'{"topic_name":"v","validate_only":true}',
    "{name}": b'{"value":"7"}',
    "{partition}": b'{"records":[{"value":null}]}',
    "{topic}": b'{"records":[{"value":null},{"partition":0}]}',
}
GOOD_GROUP_BODIES = {
    "groups/heartbeat": b'{"member_id":"m","member_epoch":0,"topics":["u"]}',
    "groups/offsets": b'{"offsets":[]}',
    "groups/offsets:fetch": b"{}",
    "consumers/assignments": b'{"partitions":[{"topic":"t","partition":0}]}',
    "consumers/beginning": b'{"partitions":[{"topic":"t","partition":0}]}',
    "consumers/end": b'{"partitions":[]}',
    "consumers/offsets": b'{"partitions":[{"topic":"t","partition":0}]}',
    "consumers/positions": b'{"offsets":[{"topic":"t","partition":0,"offset":0}]}',
    "consumers/subscription": b'{"topics":["t"]}',
    "consumers/{group}": b'{"name":"j","format":"json"}',
    "consumer-groups/offsets:reset": b'{"to":"earliest","topics":[{"topic_name":"t"}],"validate_only":true}',
}
"""Of requests about a group, which has member and instance `i`."""
NEARLY_GOOD = st.sampled_from(
    [
        *GOOD_BODIES.values(),
        *GOOD_GROUP_BODIES.values(),
        b'{"records":[]}',
        b'{"entries":[{"id":"a"},{"id":"a"}]}',
        b'{"partitions":[]}',
        b"[" * 5000,
        b"",
    ]
)
BODIES = DOCUMENTS.map(lambda document: json.dumps(document).encode()) | st.binary(max_size=200) | NEARLY_GOOD


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, str, bytes | None, dict[str, str]]:
    """Mostly right, so that what is wrong gets deep into a handler."""
    often = st.sampled_from([True, True, True, False])
    route = draw(st.sampled_from(ROUTES))
    segments = [
        segment if not segment.startswith("{") else GOOD[segment[1:-1]] if draw(often) else draw(SEGMENTS)
        for segment in route.template.split("/")
    ]
    query = draw(QUERIES) + draw(OFFSETS)
    headers = {}
    if not draw(often):
        headers["Content-Type"] = draw(CONTENT_TYPES)
    elif route.method != "GET":
        headers["Content-Type"] = route.request_media[0]
    if not draw(often):
        headers["Idempotency-Key"] = draw(st.sampled_from(["k", "l", "", "\x7f"]))
    if not draw(often):
        headers["Accept"] = draw(st.sampled_from(["*/*", "application/json", "x", "application/json;q=x"]))
    method = route.method if draw(often) or draw(often) else draw(st.sampled_from(METHODS))
    body = None if (method == "GET" and draw(often)) or not (draw(often) or draw(often)) else draw(BODIES)
    return method, "/".join(segments) + ("?" + "&".join(query) if query else ""), body, headers


async def good_body(site: Site, route: Route) -> bytes | None:
    """After what has to be there for it."""
    last = route.path.rpartition("/")[2]
    if "/users/" in route.path:
        await site.post(f"{site.v3}/users", {"user_name": GOOD["user"], "password": "12345678"})
    if "/tokens/" in route.path:
        await site.broker.admin.change_access(StoreToken(Token(GOOD["token_id"], "00", "User:bob", 1)))
    if "{group}" not in route.path:
        good = (
            b'{"partitions_count":2}'
            if route.method == "PATCH"
            else GOOD_BODIES.get(route.path) or GOOD_BODIES.get(last)
        )
        return None if route.method in ("GET", "DELETE") else good
    instance = "/consumers/g/instances/i"
    for path, document in (
        ("/consumers/g", {"name": "i"}),
        (f"{instance}/subscription", {"topics": ["t"]}),
        (f"{instance}/offsets", {"offsets": [{"topic": "t", "partition": 0, "next_offset": 0}]}),
    ):
        assert (await site.post(path, document)).status < 300
    if (route.method, last) in WITHOUT_MEMBERS:
        assert (await site.ask("DELETE", f"{instance}/subscription")).status == 204
    if route.path.startswith("/consumers") and last == "offsets":
        return GOOD_GROUP_BODIES["consumers/offsets"] if route.method == "GET" else None
    return None if route.method in ("GET", "DELETE") else GOOD_GROUP_BODIES.get(f"{_area(route)}/{last}")


WITHOUT_MEMBERS = (("POST", "assignments"), ("DELETE", "{group}"), ("POST", "offsets:reset"), ("POST", "offsets"))


def _area(route: Route) -> str:
    """`groups`, `consumers` or `consumer-groups`."""
    return route.path.partition("/{group}")[0].rpartition("/")[2]


@pytest.mark.parametrize(
    "route",
    [
        pytest.param(
            route,
            id=f"{route.method} {route.template}",
            marks=[pytest.mark.slow] if route.prefix == "/kafka/v3" else [],  # another name of the same
        )
        for route in ROUTES
    ],
)
async def test_what_is_right_is_accepted_by_every_route(site: Site, route: Route) -> None:
    target = "/".join(GOOD[part[1:-1]] if part.startswith("{") else part for part in route.template.split("/"))
    is_for_broker = "/brokers/" in target
    if is_for_broker:
        target = target.replace("retention.ms", "log.level")
    body = b'{"value":"info"}' if is_for_broker and route.method == "PUT" else await good_body(site, route)
    if target.endswith(("records", "batches")) and route.method == "GET":
        target += "?offset=0&timeout=0"
    target += GOOD_QUERIES.get(f"{route.method} {route.path.rpartition('/')[2]}", "")
    reply = await site.ask(
        route.method, target.replace("CLUSTER", site.broker.cluster_id), body, {"Content-Type": route.request_media[0]}
    )
    if route.method == "DELETE" and route.path.endswith("{broker_id}"):  # of a cluster of one, nothing is right
        assert reply.status == 400 and b"only one" in reply.body
    elif route.method == "GET" and target.endswith("/0/reassignment"):  # where nothing moves, there is none
        assert reply.status == 404 and b"do not move" in reply.body
    else:
        assert reply.status in route.statuses, reply.body
    assert reply.status == 204 or reply.headers["content-type"].split(";")[0] in route.answer_media


@pytest.mark.parametrize("count", [500, pytest.param(100_000, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])])
async def test_never_a_500(count: int) -> None:
    """F120."""
    drawn: list[tuple[str, str, bytes | None, dict[str, str]]] = []

    @settings(max_examples=count, suppress_health_check=list(HealthCheck))
    @given(requests())
    def draw(request: tuple[str, str, bytes | None, dict[str, str]]) -> None:
        drawn.append(request)

    draw()
    async with simulated(settings={"consumer.request.timeout.ms": 50}, request_timeout_ms_max=50) as site:
        await site.topic("u", 3)
        sender = Sender(site)
        for method, target, body, headers in drawn:
            if "t" not in site.broker.image.topics:
                await site.topic("t")
            if "/instances/" in target:
                await site.post("/consumers/g", {"name": "i"})
                await site.post("/consumers/g/instances/i/subscription", {"topics": ["t"]})
            await sender.send(method, target.replace("CLUSTER", site.broker.cluster_id), body, headers)
        await sender.close()
        assert sender.statuses.keys() >= {200, 400, 404}
        assert 500 not in sender.statuses
        await site.until_idle()


class Sender:
    """Sends one request after the other, on one connection as long as it lasts."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._wire: Wire | None = None
        self.statuses: dict[int, int] = {}

    async def send(self, method: str, target: str, body: bytes | None, headers: dict[str, str]) -> None:
        self._wire = self._wire or await self._site.wire()
        lengths = {} if body is None else {"Content-Length": str(len(body))}
        self._wire.write(head(method, target, {**headers, **lengths}) + (body or b""))
        reply = await self._wire.read(method)
        self.statuses[reply.status] = self.statuses.get(reply.status, 0) + 1
        assert reply.status < 500 or reply.status in (503, 504, 507), (method, target, body, reply.body)
        if reply.status >= 400:
            error: dict[str, Any] = reply.json()
            assert error.keys() == {"error_code", "message"}
            assert error["error_code"] // 100 == reply.status
            assert error["message"]
        if reply.headers.get("connection") == "close":
            assert await self._wire.is_closed(), (method, target, body)
            await self.close()

    async def close(self) -> None:
        if self._wire is not None:
            await self._wire.close()
            self._wire = None
