"""Brokers that answer what a test told them to, over real sockets: streams that break off, leaders that are none."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


@dataclass
class Script:
    """What comes next: status, headers, body, and whether the body is cut off before its end."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    is_cut: bool = False
    closes: bool = False
    """The connection, without a word about it, after the answer."""
    delay_s: float = 0.0
    """Before the answer: a long poll."""


def error(code: int, message: str = "because", **headers: str) -> Script:
    return Script(code // 100, json.dumps({"error_code": code, "message": message}).encode(), headers)


def batches(data: bytes, high_watermark: int, *, is_cut: bool = False) -> Script:
    return Script(200, data, {"Tidelog-High-Watermark": str(high_watermark)}, is_cut)


class ScriptedBroker:
    """`answers` are for reads, in order; metadata says that this broker leads everything, with `topic_id`."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address
        self.url = f"http://{address[0]}:{address[1]}"
        self.topic_id = "id"
        self.answers: list[Script] = []
        self.asked: list[str] = []
        self.connections = 0
        self.always: dict[str, Script] = {}
        """What paths with this in them are answered, as often as they are asked."""
        self.leader = 1
        self.metadata_headers: dict[str, str] = {}

    def answer(self, path: str) -> Script:
        if path.startswith("/metadata"):
            return Script(200, json.dumps(self._metadata()).encode(), self.metadata_headers)
        self.asked.append(path)
        fixed = next((script for part, script in self.always.items() if part in path), None)
        return self.answers.pop(0) if fixed is None else fixed

    def _metadata(self) -> dict[str, Any]:
        host, port = self.address
        partition = {"partition": 0, "leader": self.leader, "leader_epoch": 1, "replicas": [1], "isr": [1]}
        topic = {
            "name": "t",
            "topic_id": self.topic_id,
            "protocol": "isr",
            "is_internal": False,
            "partitions": [partition],
        }
        return {
            "cluster_id": "c",
            "controller_id": 1,
            "brokers": [{"node_id": 1, "host": host, "port": port}],
            "topics": [topic] if self.topic_id else [],
        }


@contextmanager
def scripted_broker() -> Iterator[ScriptedBroker]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            broker.connections += 1
            super().setup()

        def do_GET(self) -> None:
            script = broker.answer(self.path)
            time.sleep(script.delay_s)
            with suppress(ConnectionError):  # a client that has gone needs no answer
                self._say(script)

        def _say(self, script: Script) -> None:
            self.send_response(script.status)
            for name, value in script.headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            if script.body:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(script.body), script.body))
            if script.is_cut:
                self.close_connection = True
            else:
                self.close_connection = script.closes
                self.wfile.write(b"0\r\n\r\n")

        def log_message(self, *_: Any) -> None:
            """Quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        host, port = server.server_address[:2]
        broker = ScriptedBroker((str(host), port))
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield broker
        finally:
            server.shutdown()
            thread.join()
