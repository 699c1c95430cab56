"""A listener of another protocol than HTTP: a line in, a line out. It knows nothing of the broker but its face.

```
PRODUCE topic partition value    ->  OK offset
READ topic partition offset      ->  VALUE value, once there is one; NONE after a while
WHERE node listener              ->  AT host:port
```

An error is `ERROR` and the name that Kafka's clients know it by.
"""

from __future__ import annotations

import asyncio

from tidelog.broker.face.admission import ListenerLimits
from tidelog.broker.face.face import BrokerFace
from tidelog.broker.face.listener import Listener
from tidelog.model.access import ANONYMOUS, Caller, Operation, Resource
from tidelog.model.batch_codec import decode_batch, encode_batch
from tidelog.model.batch_header import iter_batches, split_batches
from tidelog.model.cluster import Endpoint
from tidelog.model.errors import InvalidRequest, TidelogError
from tidelog.model.ids import NodeId
from tidelog.model.records import Record

NAME = "lines"
NOBODY = Caller(ANONYMOUS, "")
WAIT_S = 5.0


class LineListener:
    """One listener. `open` before anything else; `close` once at the end."""

    def __init__(self, face: BrokerFace, listener: Listener[ListenerLimits]) -> None:
        self.admission = face.admission(listener.limits)
        self.advertised: Endpoint
        self._face = face
        self._listener = listener
        self._server: asyncio.Server
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, self._listener.bind.host, self._listener.bind.port)
        self.advertised = self._listener.advertised_at(Endpoint(*self._server.sockets[0].getsockname()), "localhost")

    async def close(self) -> None:
        self._server.close()
        self.admission.close()
        for writer in self._connections.values():
            writer.close()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = writer
        if self.admission.connections.admit():
            while line := await reader.readline():
                writer.write(await self._answer(line) + b"\n")
            self.admission.connections.leave()
        writer.close()
        await writer.wait_closed()

    async def _answer(self, line: bytes) -> bytes:
        try:
            self.admission.refuse_unready()
            self.admission.bodies.take(len(line))
            try:
                return (await self._do(line.decode().split())).encode()
            finally:
                self.admission.bodies.give_back(len(line))
        except TidelogError as error:
            return f"ERROR {error.kafka.name if error.kafka else error.code}".encode()

    async def _do(self, words: list[str]) -> str:
        match words:
            case ["PRODUCE", topic, partition, value]:
                return await self._produce(topic, int(partition), value.encode())
            case ["READ", topic, partition, offset]:
                return await self._read(topic, int(partition), int(offset))
            case ["WHERE", node, listener]:
                return f"AT {self._face.cluster.image.brokers[NodeId(int(node))].listeners[listener]}"
        raise InvalidRequest("say PRODUCE, READ or WHERE")

    async def _produce(self, topic: str, partition: int, value: bytes) -> str:
        self.admission.refuse_unauthorized(NOBODY, Operation.WRITE, Resource("Topic", topic))
        handle = self._face.partitions.handle(topic, partition)
        data = encode_batch([Record(self._face.clock.wall_ms(), None, value)])
        batches = split_batches(bytearray(data), batch_bytes_max=handle.config.max_message_bytes)
        receipt = await handle.produce(batches, acks=-1, deadline_s=asyncio.get_running_loop().time() + WAIT_S)
        return f"OK {receipt.base_offset}"

    async def _read(self, topic: str, partition: int, offset: int) -> str:
        self.admission.refuse_unauthorized(NOBODY, Operation.READ, Resource("Topic", topic))
        handle = self._face.partitions.handle(topic, partition)
        deadline_s = asyncio.get_running_loop().time() + WAIT_S
        async with self.admission.waits.until(deadline_s):
            await handle.wait_for_data(offset, bytes_min=1, deadline_s=deadline_s)
        fetched = await handle.read(offset, bytes_max=1 << 20)
        for batch in iter_batches(fetched.data):
            for record in decode_batch(batch):
                if record.offset >= offset:
                    return f"VALUE {(record.value or b'').decode()}"
        return "NONE"
