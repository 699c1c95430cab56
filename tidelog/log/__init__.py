"""A replicated log with one writer, by which state machines are replicated (after the log API of Apache Mesos).

async with Writer("http://127.0.0.1:8082", "registry") as writer:
    position = await writer.append(b"set a 1")

async with Reader("http://127.0.0.1:8082", "registry") as reader:
    async for entry in reader.read(await reader.beginning(), await reader.catchup()):
        print(entry.position, entry.data)
"""

from tidelog.log.entries import Entry
from tidelog.log.errors import WriterFenced
from tidelog.log.reader import Reader
from tidelog.log.writer import Writer

__all__ = ["Entry", "Reader", "Writer", "WriterFenced"]
