"""Every request of the listener is judged by the broker's authorizer, before anything of it is read or done."""

from __future__ import annotations

from dataclasses import replace

from tests.integration.http.conftest import JSON_V2, STOP_S, Site, listen
from tests.integration.http.wire import ask
from tidelog.model.access import ANONYMOUS, Caller, Operation, Resource

BODY = b'{"records":[{"value":1}]}'


class ReadersOfOneTopic:
    """Lets everybody read and describe topic `t`, and notes what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[Caller, Operation, Resource]] = []

    def may(self, caller: Caller, operation: Operation, resource: Resource) -> bool:
        self.asked.append((caller, operation, resource))
        return operation in (Operation.READ, Operation.DESCRIBE) and resource == Resource("Topic", "t")


async def test_what_the_authorizer_forbids_is_403_and_not_done(site: Site) -> None:
    authorizer = ReadersOfOneTopic()
    server = await listen(replace(site.broker.face, authorizer=authorizer))
    try:
        written = await ask(server.address, "POST", "/topics/t", BODY, JSON_V2)
        assert (written.status, written.json()["error_code"]) == (403, 40301)
        assert written.message.startswith("User:ANONYMOUS may not Write Topic t")
        assert authorizer.asked == [(Caller(ANONYMOUS, "127.0.0.1"), Operation.WRITE, Resource("Topic", "t"))]
        assert site.values() == []
        read = await ask(server.address, "GET", "/topics/t/partitions/0/records?offset=0")
        assert (read.status, read.json()) == (200, [])
        assert (await ask(server.address, "GET", "/topics/u")).status == 403, "as if it were there"
        for open_to_all in ("/healthz", "/readyz"):
            assert (await ask(server.address, "GET", open_to_all)).status == 200
        assert (
            server.context.metrics_page.registry.get_sample_value("tidelog_http_refused_total", {"reason": "no right"})
            == 2
        )
    finally:
        await server.stop(STOP_S)
    assert (await site.produce(1)).status == 200, "the site's own listener lets everybody"
