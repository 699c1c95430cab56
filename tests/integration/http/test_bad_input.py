"""Bad input of every kind, on every kind of route: its status and its code, nothing appended, never a 500."""

from __future__ import annotations

import pytest

from tests.integration.http.conftest import BINARY_V2, JSON_DOCUMENT, JSON_V2, Site
from tests.integration.http.wire import head
from tidelog.broker.http.routes import ROUTES
from tidelog.sim.kit.disk import SimDisk

BAD_NAMES = ["..", ".", "%2e%2e", "..%2f..%2fetc%2fpasswd", "a%2fb", "a%5cb", "a%00", "%00", "n" * 250,
             "%c0%ae%c0%ae", "%ff", "a%20b", "%E2%80%A4%E2%80%A4",
             "t%0d%0aX:1", "a+b", "a*", "%zz", "a:b", "t;x", "%1b[31m"]  # fmt: skip


def targets(name: str, cluster_id: str) -> list[tuple[str, str]]:
    return [
        (route.method, route.template.format(cluster_id=cluster_id, topic=name, partition=0, broker_id=1, name="n"))
        for route in ROUTES
        if "{topic}" in route.path and "{group}" not in route.path and route.prefix != "/kafka/v3"
    ]


@pytest.mark.parametrize("name", BAD_NAMES)
async def test_bad_topic_names_are_400_on_every_route(site: Site, name: str) -> None:
    """F108; nor is there another file."""
    assert isinstance(site.files, SimDisk)
    before = {*site.files.medium.walk()}
    for method, target in targets(name, site.broker.cluster_id):
        body = None if method == "GET" else b"{}"
        reply = await site.ask(method, target, body, JSON_DOCUMENT)
        assert (reply.status, reply.code) == (400, 40002), target
        assert "\x1b" not in reply.message
        assert "\r" not in reply.message
    assert sorted(site.broker.image.topics) == ["t"]
    assert {*site.files.medium.walk()} == before


async def test_unknown_topics_are_404_on_every_route(site: Site) -> None:
    bodies = {"configs/n": b'{"value":"1"}', "configs:alter": b'{"data":[{"name":"retention.ms","value":"1"}]}'}
    for method, target in targets("none", site.broker.cluster_id):
        body = next((text for end, text in bodies.items() if target.endswith(end)), b'{"partitions_count":5}')
        known = target.replace("configs/n", "configs/retention.ms") + "?offset=0"
        reply = await site.ask(method, known, None if method in ("GET", "DELETE") else body)
        assert (reply.status, reply.code) == (404, 40401), (method, known, reply.body)


@pytest.mark.parametrize(
    ("number", "code"),
    [("-1", 40002), ("9223372036854775808", 40002), ("2147483648", 40002), ("1e400", 40002),
     ("true", 40002), ("%2B4", 40002), ("%D9%A4", 40002), ("0x1", 40002), ("1.0", 40002), ("%00", 40002),
     ("1", 40402), ("2147483647", 40402)],
)  # fmt: skip
async def test_partition_numbers(site: Site, number: str, code: int) -> None:
    """F115."""
    for method, path in (
        ("GET", "/topics/t/partitions/{}"),
        ("GET", "/topics/t/partitions/{}/offsets"),
        ("GET", "/topics/t/partitions/{}/records?offset=0"),
        ("GET", "/topics/t/partitions/{}/batches?offset=0"),
        ("POST", "/topics/t/partitions/{}/batches"),
        ("POST", "/topics/t/partitions/{}"),
        ("GET", site.v3 + "/topics/t/partitions/{}"),
        ("GET", site.v3 + "/topics/t/partitions/{}/offset"),
        ("GET", site.v3 + "/topics/t/partitions/{}/replicas/1"),
    ):
        reply = await site.ask(method, path.format(number), b"{}" if method == "POST" else None)
        assert (reply.status, reply.code) == (code // 100, code), path


JSON_BODIES: list[tuple[bytes, int]] = [
    (b"", 400), (b"{", 400), (b"[]", 400), (b"null", 400), (b"{}", 400), (b'{"records":[]}', 422),
    (b'{"records":null}', 400),
    (b'{"records":[{"value":1}],"x":1}', 400), (b'{"records":[{"vlaue":1}]}', 400), (b'{"records":[5]}', 400),
    (b'{"records":[{"partition":"0"}]}', 400), (b'{"records":[{"partition":true}]}', 400),
    (b'{"records":[{"partition":-1}]}', 400), (b'{"records":[{"partition":9223372036854775808}]}', 400),
    (b'{"records":[{"partition":1e400}]}', 400), (b'{"records":[{"partition":1}]}', 404),
    (b'{"records":[{"value":"\xff"}]}', 400), (b'{"records":[{"value":"\\ud800"}]}', 400),
    (b'{"records":[{"value":NaN}]}', 400),
    (b'{"records":[{"timestamp":-1}]}', 400), (b'{"records":[{"timestamp":9000000000000001}]}', 400),
    (b'{"records":[{"headers":{}}]}', 400), (b'{"records":[{"headers":[%b]}]}' % b",".join([b'{"key":"h"}'] * 33), 422),
    (b'{"records":[{"headers":[{"key":"%b"}]}]}' % (b"h" * 1025), 422),
    (b'{"records":[{"key":"%b"}]}' % (b"k" * 65536), 422),
    (b'{"records":[%b{}]}' % (b"{}," * 10_000), 422), (b'{"records":[{"value":"%b"}]}' % (b"v" * 1_048_588), 413),
    (b"[" * 1_000_000, 400), (b'{"records":[{"value":' + b"[" * 1_000_000, 400),
    (b'{"records":[{"value":1}]}' * 2, 400),
    (b'{"records":[{"value":' + b"9" * 900_000 + b',"partition":' + b"9" * 900_000 + b"}]}", 400),
]  # fmt: skip


@pytest.mark.parametrize(("body", "status"), JSON_BODIES, ids=lambda it: str(it)[:40])
async def test_bad_v2_bodies(site: Site, body: bytes, status: int) -> None:
    """F110."""
    reply = await site.ask("POST", "/topics/t", body, JSON_V2)
    assert (reply.status, reply.json().keys()) == (status, {"error_code", "message"})
    assert len(reply.message) < 400
    assert site.values() == []


async def test_a_json_body_under_the_wrong_type_is_refused_with_the_header_to_send(site: Site) -> None:
    body = b'{"records":[{"value":1}]}'
    for content_type in ("application/x-www-form-urlencoded", "text/plain", "application/vnd.kafka.avro.v2+json"):
        reply = await site.ask("POST", "/topics/t", body, {"Content-Type": content_type})
        assert (reply.status, reply.code) == (415, 41501)
        assert "application/vnd.kafka.json.v2+json" in reply.message
    reply = await site.ask("POST", "/topics/t", body, BINARY_V2)
    assert (reply.status, reply.code) == (400, 40002)
    for target in (f"{site.v3}/topics", f"{site.v3}/topics/t/records", f"{site.v3}/topics/t/records:batch", "/offsets"):
        reply = await site.ask("POST", target, body, {"Content-Type": "application/x-www-form-urlencoded"})
        assert (reply.status, reply.code) == (415, 41501)
    reply = await site.ask("POST", "/topics/t/partitions/0/batches", b"x", JSON_V2)
    assert (reply.status, reply.code) == (415, 41501)


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "gzip, gzip", "x", "GZIP"])
async def test_content_encodings_are_refused_unread(site: Site, encoding: str) -> None:
    """F109."""
    for target in ("/topics/t", "/topics/t/partitions/0/batches", f"{site.v3}/topics/t/records"):
        reply = await site.ask("POST", target, b"\x1f\x8b\x08" + b"\x00" * 100, {"Content-Encoding": encoding})
        assert (reply.status, reply.code) == (415, 41501)


async def test_a_body_is_required_where_one_belongs(site: Site) -> None:
    partition = "/topics/t/partitions/0"
    batch = f"{site.v3}/topics/t/records:batch"
    for target in ("/topics/t", partition, f"{partition}/batches", batch, f"{site.v3}/topics", "/offsets"):
        async with await site.wire() as wire:
            wire.write(head("POST", target, {}))
            reply = await wire.read()
            assert (reply.status, reply.code) == (411, 41101)
            assert await wire.is_closed()
    assert site.values() == []


async def test_too_large_a_body_is_refused_before_it_is_sent(site: Site) -> None:
    for target, limit in (("/topics/t", 5 << 20), ("/topics/t/partitions/0/batches", 32 << 20)):
        async with await site.wire() as wire:
            wire.write(head("POST", target, {"Content-Length": str(limit + 1), "Expect": "100-continue"}))
            reply = await wire.read()
            assert (reply.status, reply.code) == (413, 41301)
            assert str(limit) in reply.message
            assert await wire.is_closed()


@pytest.mark.parametrize(
    "query", ["acks=2", "acks=", "acks=ALL", "async=1", "async=true&acks=all", "async=false&acks=0", "acks=1&acks=1",
              "timeout_ms=-1", "timeout_ms=soon", "acks=%zz"]
)  # fmt: skip
async def test_bad_produce_parameters(site: Site, query: str) -> None:
    """F115."""
    for target in ("/topics/t", "/topics/t/partitions/0/batches", f"{site.v3}/topics/t/records:batch"):
        body = site.batch(b"x") if "batches" in target else b'{"records":[{"value":1}]}'
        headers = JSON_V2 if target == "/topics/t" else {}
        reply = await site.ask("POST", f"{target}?{query}", body, headers)
        assert (reply.status, reply.code) == (400, 40002), target
    assert site.values() == []


async def test_what_is_not_there(site: Site) -> None:
    for target in (
        "/nothing",
        "/v3",
        "/v3/",
        "/v2/topics",
        "/topics/t/partitions/0/nothing",
        "/topics//",
        "//topics",
        "//",
        "/%2e%2e/etc",
    ):
        reply = await site.get(target)
        assert (reply.status, reply.code) == (404, 40400), target
        assert reply.headers["content-type"] == "application/json"


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE", "BREW"])
async def test_wrong_methods_name_the_right_ones(site: Site, method: str) -> None:
    async with await site.wire() as wire:
        wire.write(head(method, "/topics/t", {"Content-Length": "0"}))
        reply = await wire.read(method)
    assert reply.status in (405, 400)  # 400 where the parser knows no such method
    if reply.status == 405:
        assert reply.headers["allow"] == "GET, POST"


async def test_error_bodies_never_tell_what_runs_here(site: Site) -> None:
    for reply in (await site.get("/nothing"), await site.ask("POST", "/topics/t", b"{", JSON_V2)):
        assert b"Traceback" not in reply.body
        assert b".py" not in reply.body
        assert "server" not in reply.headers
