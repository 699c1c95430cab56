"""Pictures from recordings and figures: what a screen showed and when, what is drawn of it, what is chosen."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from tidelog.bench.pause import Done
from tools.pictures import peers, stalls
from tools.pictures.recording import ERASE_ABOVE, PROMPT, Line, completed
from tools.pictures.scenes import first_unseen
from tools.pictures.screen import draw, shown_at_s

SVG = "{http://www.w3.org/2000/svg}"


def test_a_line_has_the_time_of_its_last_piece() -> None:
    assert completed([Line("$ ech", 0.1), Line("o a\r\na\r", 0.2), Line("\n$ ", 0.3)]) == [
        Line("$ echo a", 0.2),
        Line("a", 0.3),
    ]


def test_a_line_that_was_erased_is_gone() -> None:
    assert completed([Line(f"kept\n50 %\n{ERASE_ABOVE}done\n", 1.0)]) == [Line("kept", 1.0), Line("done", 1.0)]


def test_waits_are_cut_and_there_is_time_to_read_before_a_command() -> None:
    lines = [Line(f"{PROMPT}sleep 60", 1.0), Line("awake", 61.0), Line("still", 61.5), Line(f"{PROMPT}ls", 61.5)]
    assert [*shown_at_s(lines)] == [0.0, 1.5, 2.0, 3.0]


def test_a_drawing_has_the_text_as_it_is_to_be_copied() -> None:
    drawn = ElementTree.fromstring(draw("a", "A <title>", [Line(f"{PROMPT}echo  'a & b'", 0.0)], 40))
    assert "".join(text.text or "" for text in drawn.iter(f"{SVG}text")).endswith("$ echo  'a & b'")
    assert drawn.findtext(f"{SVG}title") == "A <title>"


def test_each_row_of_a_line_appears_at_the_lines_time() -> None:
    drawn = draw("a", "A", [Line("short", 0.0), Line("x" * 25, 0.7), Line("last", 0.7)], 10)
    for row, delay in enumerate(("0.00s", "0.70s", "0.70s", "0.70s", "0.70s")):
        assert f'[clip-path="url(#a-line-{row})"] {{ animation-delay: {delay}; }}' in drawn
        assert f'<clipPath id="a-line-{row}">' in drawn
    assert ">xxxxx<" in drawn


def test_what_was_typed_is_not_taken_for_what_was_printed() -> None:
    lines = [Line(f"{PROMPT}echo b; echo a", 0.0), Line("b", 0.0), Line("a", 0.0)]
    assert first_unseen(("b", "a"), lines) is None
    assert first_unseen(("a", "b"), lines) == "b"


def test_a_stall_is_seen_by_the_record_that_waits_longest() -> None:
    done = Done([(8.0, 8.1), (10.001, 10.5), (10.002, 10.4), (10.51, 10.52), (99.0, 99.1)])
    assert [(sent_s, round(wait_ms)) for sent_s, wait_ms in stalls.waits(done, 10.0)] == [(0.0, 499), (0.5, 10)]


def test_a_stall_is_what_happened_about_the_fault() -> None:
    assert stalls.stall_ms([(-0.6, 90.0), (-0.05, 300.0), (0.0, 290.0), (3.0, 400.0)]) == 300.0


def test_unrest_is_what_was_before_the_fault() -> None:
    assert stalls.unrest_ms({"isr": [(-0.5, 3.0), (0.0, 900.0)], "paxos": [(-0.5, 5.0), (0.0, 900.0)]}) == 4.0


def test_the_history_has_figures_of_a_real_kafka() -> None:
    ours, kafkas = peers.sites(peers.HISTORY.read_text()).items()
    assert (ours[0], kafkas[0].split()[0]) == ("tidelog", "Kafka")
    for _, figures in (ours, kafkas):
        assert all(figures[f"{work}: {what}"] > 0 for work in peers.WORK for what in (peers.RATE, peers.PROCESSOR))


def test_a_history_without_a_real_kafka_says_how_to_get_one() -> None:
    alone = '{"workload": "kafka clients", "figures": {"tidelog fsynced, out, 100 B: records/s": 1}}'
    with pytest.raises(LookupError, match="make bench-kafka"):
        peers.sites(alone)
