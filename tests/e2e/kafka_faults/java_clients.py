"""A process of Java's clients, and what it says put into the books. It takes `java`, and the jars of kafka-clients."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.e2e.kafka_faults.books import UNKNOWN, At, Book, Group

PROGRAM: Final = Path(__file__).with_name("java") / "FaultClients.java"
JAVA: Final = ("java", "-Xmx256m", "-XX:+UseSerialGC")
NAME: Final = "java"
"""The members of Java have this name in the books."""
END_S_MAX: Final = 150.0


class JavaClients:
    """A producer for some books, and a member of each group. A context: at its end the members have left.

    `groups` are those by their protocol, and `topics` what they read.
    """

    def __init__(
        self,
        class_path: str,
        bootstrap: str,
        books: Sequence[Book],
        groups: Mapping[str, Group],
        topics: Sequence[str],
        every_s: float,
        request_ms: int,
    ) -> None:
        written = sorted({book.at.topic for book in books})
        self.failures: list[str] = []
        self._books = {book.at: book for book in books}
        self._groups = {group.name: group for group in groups.values()}
        self._has_written = threading.Event()
        self._words = [*JAVA, "-cp", class_path, str(PROGRAM), bootstrap, ",".join(written), ",".join(topics)]
        self._words += [str(request_ms), str(round(every_s * 1_000))]
        self._words += [f"{group.name}:{protocol}" for protocol, group in groups.items()]
        self._thread = threading.Thread(target=self._listen)

    def __enter__(self) -> JavaClients:
        self._process = subprocess.Popen(
            self._words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
            self._process.wait(END_S_MAX)
        finally:
            self._process.kill()
            self._thread.join()

    def stop_writing(self) -> None:
        """Returns when the fate of each record is known. Raises `TimeoutError`."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        if not self._has_written.wait(END_S_MAX):
            raise TimeoutError("the Java producer does not end")

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._note(line.rstrip("\n"))

    def _note(self, line: str) -> None:
        kind, _, rest = line.partition(" ")
        match kind:
            case "A" | "F":
                topic, partition, number, outcome = rest.split(" ", 3)
                book = self._books[At(topic, int(partition))]
                if kind == "F":
                    book.fail(int(number), outcome)
                else:
                    book.acknowledge(int(number), max(UNKNOWN, int(outcome)))
            case "R":
                group, topic, partition, number = rest.split(" ")
                self._groups[group].see(At(topic, int(partition)), int(number))
            case "H":
                group, generation, held = rest.split(" ")
                pairs = [one.rpartition(":") for one in held.split(",") if one]
                self._groups[group].claim(NAME, int(generation), [At(topic, int(at)) for topic, _, at in pairs])
            case "W":
                self._has_written.set()
            case _:
                self.failures.append(line)
