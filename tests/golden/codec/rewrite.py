"""Records anew what the installed clients write: `python -m tests.golden.codec.rewrite`. The diff is the review.

Only gzip batches change from run to run, since gzip writes the time of day.
"""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path

from tests.golden.codec.conftest import FOREIGN, ForeignCodec
from tidelog.model.batch_header import Compression
from tidelog.model.records import Record

NOW = 1_700_000_000_000
CASES = {
    "one record": [Record(NOW, b"key", b"value")],
    "nulls and empties": [
        Record(NOW, None, b"v"),
        Record(NOW, b"k", None),
        Record(NOW, None, None),
        Record(NOW, b"", b""),
    ],
    "times back and forth": [
        Record(NOW + delta, b"k", b"v") for delta in (0, 1, -1, 64, -65, 8192, -8193, 86_400_000, 0)
    ],
    "headers": [
        Record(NOW, b"k", b"v", [("trace", b"\x00\xff"), ("trace", b""), ("gone", None)]),
        Record(NOW, b"k", b"v"),
        Record(NOW, None, None, [("Δ☃", "Δ☃".encode())]),
    ],
    "lengths around 64": [Record(NOW, b"k" * size, b"v" * size) for size in (62, 63, 64, 65)],
    "seventy records": [Record(NOW + index, b"%d" % (index % 7), b'{"n":%d}' % index) for index in range(70)],
}
PRODUCERS = {"one record": (2**40 + 5, 3, 2**31 - 1), "headers": (0, 0, 0)}


def as_hex(content: bytes | None) -> str | None:
    return None if content is None else content.hex()


def recorded(foreign: ForeignCodec, name: str, compression: Compression) -> dict[str, object]:
    producer = PRODUCERS.get(name, (-1, -1, -1))
    return {
        "name": name,
        "compression": compression.label,
        "producer": producer,
        "records": [
            [
                record.timestamp_ms,
                as_hex(record.key),
                as_hex(record.value),
                [[header, as_hex(content)] for header, content in record.headers],
            ]
            for record in CASES[name]
        ],
        "batch": foreign.encode(CASES[name], compression, producer).hex(),
    }


def main() -> None:
    for foreign in FOREIGN.values():
        cases = [recorded(foreign, name, compression) for name in CASES for compression in foreign.codecs]
        lines = ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases)
        written_by = json.dumps(f"{foreign.package} {version(foreign.package)}")
        text = f'{{"written_by": {written_by}, "cases": [\n{lines}\n]}}\n'
        Path(__file__).with_name(f"{foreign.name}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
