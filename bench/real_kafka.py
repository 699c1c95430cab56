"""A Kafka broker of one node on this machine, to be measured beside tidelog. It takes Java 17, and Kafka's jars.

make kafka-jars                                       # fetches them from Maven Central to .kafka/lib
python bench/kafka_clients.py --beside .kafka/lib
"""

from __future__ import annotations

import socket
import subprocess
import tempfile
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from tidelog.testing.ports import HeldPorts

HEAP: Final = "1g"
START_S_MAX: Final = 120.0
STOP_S_MAX: Final = 30.0
LOOK_S: Final = 0.2
HOST: Final = "127.0.0.1"
SETTINGS: Final = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
}


class RealKafka(NamedTuple):
    """A broker that runs."""

    bootstrap: str
    pid: int
    version: str


@contextmanager
def running(jars: Path) -> Iterator[RealKafka]:
    """A broker, with its data in a temporary directory. Raises `RuntimeError` if it does not start."""
    [core] = jars.glob("kafka_2.13-*.jar")
    java = ["java", f"-Xms{HEAP}", f"-Xmx{HEAP}", "-cp", f"{jars}/*"]
    ports = HeldPorts()
    with tempfile.TemporaryDirectory(prefix="kafka-bench-") as directory:
        port, controller = ports.take(2)
        properties = Path(directory) / "server.properties"
        properties.write_text(_properties(directory, port, controller))
        identity = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        # As one word: an id may begin with a hyphen.
        format_words = ["kafka.tools.StorageTool", "format", f"--cluster-id={identity}", "-c", str(properties)]
        subprocess.run([*java, *format_words], check=True, capture_output=True)
        with (Path(directory) / "output").open("wb") as output:
            process = subprocess.Popen([*java, "kafka.Kafka", str(properties)], stdout=output, stderr=output)
        try:
            _wait(process, port, Path(directory) / "output")
            yield RealKafka(f"{HOST}:{port}", process.pid, core.stem.rpartition("-")[2])
        finally:
            process.terminate()
            try:
                process.wait(STOP_S_MAX)
            finally:
                process.kill()
                ports.release()


def _properties(directory: str, port: int, controller: int) -> str:
    settings = {
        **SETTINGS,
        "log.dirs": f"{directory}/data",
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
        "controller.quorum.voters": f"1@{HOST}:{controller}",
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def _wait(process: subprocess.Popen[bytes], port: int, output: Path) -> None:
    """Returns when it listens."""
    deadline_s = time.monotonic() + START_S_MAX
    while time.monotonic() < deadline_s and process.poll() is None:
        try:
            socket.create_connection((HOST, port), LOOK_S).close()
        except OSError:
            time.sleep(LOOK_S)  # Kafka has no other way to say that it listens
        else:
            return
    raise RuntimeError(f"Kafka does not start:\n{output.read_text(errors='replace')[-2_000:]}")
