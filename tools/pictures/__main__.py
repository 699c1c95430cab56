"""Makes pictures of docs/images anew: `python -m tools.pictures [NAME ...]`, all of them without a name."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final

from tools.pictures import batches, peers, plots, scenes, stalls

IMAGES: Final = Path(__file__).parents[2] / "docs" / "images"
SCENES: Final = (scenes.FAILOVER, scenes.REBALANCE, scenes.DAMAGE)
PICTURES: Final[Mapping[str, Callable[[], str]]] = MappingProxyType(
    {
        **{scene.name: partial(scenes.picture, scene) for scene in SCENES},
        "stalls": lambda: plots.of_stalls(asyncio.run(stalls.measure())),
        "batches": lambda: plots.of_batches(asyncio.run(batches.measure())),
        "peers": lambda: plots.of_peers(peers.sites(peers.HISTORY.read_text())),
    }
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes the files. Exits with 2 if a name is none of a picture's."""
    parser = argparse.ArgumentParser("tools.pictures", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PICTURES))
    names = parser.parse_args(arguments).names
    unknown = set(names) - PICTURES.keys()
    if unknown:
        parser.error(f"no such picture: {', '.join(sorted(unknown))}")
    for name in names or PICTURES:
        file = IMAGES / f"{name}.svg"
        file.write_text(PICTURES[name]())
        print(f"{file.name}: {file.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
