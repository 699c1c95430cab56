"""A key-value map on a replicated log: whoever applies the same entries in the same order has the same map.

Each run of `python examples/replicated_map.py --bootstrap http://127.0.0.1:8082` goes on with the map of the last one.
"""

from __future__ import annotations

import argparse
import asyncio
import json

from tidelog.admin import AdminClient
from tidelog.log import Entry, Reader, Writer, WriterFenced


class ReplicatedMap:
    def __init__(self, reader: Reader) -> None:
        self.reader, self.position, self.state = reader, 0, dict[str, int]()

    def apply(self, entry: Entry) -> None:
        command = json.loads(entry.data)
        self.state = command.get("snapshot", self.state) | command.get("set", {})
        self.position = entry.position + 1

    async def catch_up(self, to: int) -> None:
        async for entry in self.reader.read(max(self.position, await self.reader.beginning()), to):
            self.apply(entry)

    async def append(self, writer: Writer, **command: dict[str, int]) -> int:
        data = json.dumps(command).encode()
        position = await writer.append(data)
        self.apply(Entry(position, data))  # only now: what is not in the log has not happened
        return position


async def main(bootstrap: str, topic: str) -> None:
    async with AdminClient(bootstrap) as admin:
        if topic not in await admin.list_topics():
            await admin.create_topic(topic, configs={"commit.protocol": "paxos", "retention.ms": "-1"})
    async with Reader(bootstrap, topic) as reader, Writer(bootstrap, topic) as old, Writer(bootstrap, topic) as writer:
        leader = ReplicatedMap(reader)
        await leader.catch_up(writer.ending)  # all that earlier writers ever appended
        print(f"took over at position {writer.ending} with {leader.state}")
        await leader.append(writer, set={"runs": leader.state.get("runs", 0) + 1})
        follower = ReplicatedMap(reader)
        await follower.catch_up(await reader.catchup())
        print(f"another replica reads {follower.state}: {'equal' if follower.state == leader.state else 'DIFFERENT'}")
        await writer.truncate(await leader.append(writer, snapshot=leader.state))
        print(f"a snapshot stands for all before it: the log begins at {await reader.beginning()}")
        try:
            await leader.append(old, set={"runs": 0})
        except WriterFenced:
            print("the writer before this one is fenced: its entry is not in the log")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A key-value map on a replicated log.")
    parser.add_argument("--bootstrap", default="http://127.0.0.1:8082", help="any brokers, comma-separated")
    parser.add_argument("--topic", default="replicated-map", help="created if it does not exist")
    asyncio.run(main(**vars(parser.parse_args())))
