"""`tidelog log accept-loss` says what it has done."""

from __future__ import annotations

import pytest

from tidelog.cli.log_losses import _print_judged
from tidelog.transport.losses import DamagedPiece, LossesJudged, Remains, Statement

SAID = (Statement(1, "log 0 to 0, leader epoch 0"), Statement(3, "log 0 to 3, leader epoch 0"))
PIECE = DamagedPiece(3, 6, None, (), None, None, None)


@pytest.mark.parametrize(("source", "by"), [(3, ", by the log of broker 3"), (None, "")])
def test_giving_up_votes_says_what_the_partition_goes_on_from_and_nothing_of_offsets(
    source: int | None, by: str, capsys: pytest.CaptureFixture[str]
) -> None:
    judged = LossesJudged(True, (), (), (), is_whole=True, remains=Remains((1, 3), source, 3, SAID))
    _print_judged("j-0", judged, is_done=True)
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == f"j-0 goes on from offset 3 with brokers 1, 3{by}; what others had behind it is given up"


def test_giving_up_offsets_says_how_many(capsys: pytest.CaptureFixture[str]) -> None:
    _print_judged("i-3", LossesJudged(True, (PIECE,), (), (), is_whole=True), is_done=True)
    assert capsys.readouterr().out.splitlines()[-1] == "i-3: 3 offsets given up"
