"""Reading a replicated log of which entries are lost, and that was accepted: never over them."""

from __future__ import annotations

import pytest

from tests.integration.spark.scripted import Script, scripted_broker
from tidelog.log import Reader
from tidelog.model.batch_codec import encode_batch
from tidelog.model.errors import RecordsLost


async def test_entries_before_a_loss_come_first_and_none_behind_it_unasked() -> None:
    before, behind = (bytes(encode_batch([(1, None, b"v")] * 3, base_offset=start)) for start in (0, 6))
    end, lost = {"Tidelog-High-Watermark": "9"}, {"Tidelog-Lost": "3-5"}
    with scripted_broker() as broker:
        broker.always = {
            "offset=0&": Script(200, before + behind, end | lost),
            "offset=3&": Script(200, behind, end | lost),
            "offset=6&": Script(200, behind, end),
        }
        async with Reader(broker.url, "t") as reader:
            positions = []
            with pytest.raises(RecordsLost, match=r"entries 3-5 are lost.*begin at 6") as caught:
                async for entry in reader.read(0, 9):
                    positions.append(entry.position)  # noqa: PERF401 - those before the error are wanted
            assert positions == [0, 1, 2]
            assert (caught.value.topic, caught.value.partition, caught.value.ranges) == ("t", 0, ((3, 6),))
            assert [entry.position async for entry in reader.read(6, 9)] == [6, 7, 8]
