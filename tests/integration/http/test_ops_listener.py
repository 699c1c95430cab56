"""The operational listener answers while clients hold every place of the main one, and serves nothing else."""

from __future__ import annotations

from tests.integration.http.conftest import STOP_S, simulated
from tests.integration.http.wire import ask
from tidelog.broker.http.server import start_ops
from tidelog.model.cluster import Endpoint


async def test_health_is_told_apart_from_the_places_of_clients() -> None:
    async with simulated(connections_max=1, probes_max=0) as site:
        ops = await start_ops(site.server, Endpoint("127.0.0.1", 0))
        async with await site.wire() as busy:
            assert (await busy.request("GET", "/topics")).status == 200
            assert (await site.get("/healthz")).status == 503
            for path in ("/healthz", "/readyz", "/metrics"):
                assert (await ask(ops.address, "GET", path)).status == 200
            for path in ("/topics", "/metadata", "/"):
                assert (await ask(ops.address, "GET", path)).code == 40400
        await site.broker.hand_over()
        await site.server.stop(STOP_S)
        assert (await ask(ops.address, "GET", "/readyz")).code == 50306
        assert (await ask(ops.address, "GET", "/healthz")).status == 200
        await ops.stop(STOP_S)
