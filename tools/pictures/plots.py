"""Plots: what was measured, as SVG files. The one module here that imports matplotlib.

Text stays text, in whatever font the reader has. A plot lies on white paper of its own, so that it can be read on a
dark page as well. Of the two colours one is much darker than the other, for people who see little else of them.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from io import StringIO
from typing import Any, Final

import matplotlib as mpl
from matplotlib.figure import Figure

from tidelog.model.cluster import ISR, PAXOS
from tools.pictures import batches, peers, stalls

FIRST: Final = "#0f5f8a"
SECOND: Final = "#e08a00"
COLOURS: Final = {ISR: FIRST, PAXOS: SECOND}
MARKERS: Final = {ISR: "o", PAXOS: "s"}
WIDTH_INCHES: Final = 8.6
MARGIN_INCHES: Final = 0.12
mpl.rcParams.update(
    {
        "axes.axisbelow": True,
        "axes.edgecolor": "#64748b",
        "axes.grid": True,
        "axes.spines.right": False,
        "axes.spines.top": False,
        "axes.titlesize": "medium",
        "font.sans-serif": ["DejaVu Sans", "Verdana", "sans-serif"],
        "font.size": 11,
        "grid.color": "#e2e8f0",
        "legend.frameon": False,
        "path.simplify_threshold": 1.0,
        "svg.fonttype": "none",
        "svg.hashsalt": "tidelog",  # ids are the same in each run
    }
)


def of_stalls(by_fault: Mapping[str, stalls.Lines]) -> str:
    """Returns a panel for each fault, with a line for each protocol."""
    figure, axes = _panels(len(by_fault), 1, height_inches=2.3 * len(by_fault), sharex=True, sharey=True)
    for panel, (title, lines) in zip(axes[:, 0], by_fault.items(), strict=True):
        for name, line in lines.items():
            stall = f"{name}, stalled for {stalls.stall_ms(line):,.0f} ms"
            panel.plot(*zip(*line, strict=True), color=COLOURS[name], label=stall)
        panel.set(title=f"The leader is {title}", yscale="log", xlim=(-stalls.BEFORE_S, stalls.AFTER_S))
        panel.yaxis.set_major_formatter("{x:,.0f} ms")
        panel.legend(loc="upper right")
    axes[-1, 0].set_xlabel("sent, in seconds after the fault")
    return _file(figure, "How long a record waits for its acknowledgement while its leader goes")


def of_batches(by_protocol: Mapping[str, batches.Runs]) -> str:
    """Returns a panel of throughput and one of processor time. A run is a dot; lines go through the medians."""
    figure, axes = _panels(1, 2, height_inches=3.6)
    looked = (
        (batches.RATE, "MB/s: more is better"),
        (batches.PROCESSOR, "brokers' CPU s per GB: less is better"),
    )
    for panel, (figure_name, title) in zip(axes[0], looked, strict=True):
        for name, runs in by_protocol.items():
            look = {"color": COLOURS[name], "marker": MARKERS[name]}
            values = {size: [figures[figure_name] for figures in some] for size, some in runs.items()}
            panel.plot([*values], [statistics.median(some) for some in values.values()], label=name, **look)
            dots = [(size, value) for size, some in values.items() for value in some]
            panel.scatter(*zip(*dots, strict=True), s=9, alpha=0.4, **look)
        panel.set(title=title, xscale="log", ylim=(0, None), xlabel="size of a batch")
        panel.set_xticks([*batches.SIZES], labels=[*map(_shown_bytes, batches.SIZES)])
        panel.minorticks_off()
    axes[0, 0].legend(loc="upper left")
    return _file(figure, "Throughput and processor time by the size of batches, by commit protocol")


def of_peers(by_site: Mapping[str, peers.Figures]) -> str:
    """Returns bars of records a second, and of the broker's processor time."""
    figure, axes = _panels(1, 2, height_inches=4.4, sharey=True)
    for panel, what, scale in zip(axes[0], (peers.RATE, peers.PROCESSOR), (1000, 1), strict=True):
        for number, (site, figures) in enumerate(by_site.items()):
            places = [place + 0.38 * number for place in range(len(peers.WORK))]
            values = [figures[f"{work}: {what}"] / scale for work in peers.WORK]
            bars = panel.barh(places, values, height=0.36, color=(FIRST, SECOND)[number], label=site)
            panel.bar_label(bars, fmt="{:,.0f}" if scale > 1 else "{:.2f}", padding=3, fontsize=9)
        panel.grid(visible=False, axis="y")
        panel.margins(x=0.15)
    axes[0, 0].set(title="thousand records/s", xlabel="more is better")
    axes[0, 1].set(title="broker's CPU s per million", xlabel="less is better")
    axes[0, 0].set_yticks([place + 0.19 for place in range(len(peers.WORK))], labels=[*peers.WORK.values()])
    axes[0, 0].invert_yaxis()
    axes[0, 1].legend(loc="lower right")
    return _file(figure, "One broker beside a real Kafka")


def _panels(rows: int, columns: int, height_inches: float, **shared: Any) -> tuple[Figure, Any]:
    """Returns a figure and its panels, as an array of rows and columns."""
    figure = Figure(figsize=(WIDTH_INCHES, height_inches), layout="constrained")
    figure.get_layout_engine().set(w_pad=MARGIN_INCHES, h_pad=MARGIN_INCHES)
    return figure, figure.subplots(rows, columns, squeeze=False, **shared)


def _file(figure: Figure, title: str) -> str:
    """Returns the SVG file of a figure. It names no date, so that it differs only where what it shows does."""
    with StringIO() as file:
        figure.savefig(file, format="svg", metadata={"Title": title, "Date": None, "Creator": None})
        return "".join(f"{line.rstrip()}\n" for line in file.getvalue().splitlines())


def _shown_bytes(size: int) -> str:
    kib = size // 1024
    return f"{kib} KiB" if kib < 1024 else f"{kib // 1024} MiB"
