"""Lines that a program did not finish, and lines made to keep a pattern busy.

A log that is cut off ends in the middle of a line: what is left may hold half a figure, which is no figure.
The work on a line must grow with its length and not with its square.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from runner.io.logs import Log
from runner.model import Line
from runner.parsers import families
from runner.parsers._engine import Hit, Matcher

PAIRS = Path(__file__).parent / "parsers"
CASES = sorted(PAIRS.glob("*/*.log"))
LINE = 1 << 14
BUDGET_S = 0.05  # linear patterns take some 2 ms, quadratic ones 150
TRIES = 20  # of each kind of line

# Whose records end with their figure, or may: there, half of it looks like a whole one
OPEN_ENDED = {
    "runkit",
    "nccl_tests",
    "dll_mxnet_resnet50",
    "dll_pytorch_resnet50",
    "dll_tf_bert",
    "dll_tf_resnet50",
}
CLOSED = [path for path in CASES if path.parent.name not in OPEN_ENDED]


def measure(hit: Hit | None) -> tuple[float | None, float | None] | None:
    return None if hit is None or hit.record is None else (hit.record.rate, hit.record.step_s)


@pytest.mark.parametrize("path", CLOSED, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_half_a_figure_is_none(path: Path) -> None:
    matcher = Matcher(families()[path.parent.name])
    whole = [(line, hit) for line in Log(path, path.name) if (hit := matcher.hit(line)) and hit.record]
    for line, hit in whole[-1:]:
        text = line.text.rstrip()
        for length in (at for at in range(1, len(text)) if text[at - 1] in "0123456789."):
            cut = measure(matcher.hit(Line(1, text[:length], line.rank)))
            assert cut in (None, measure(hit)), text[:length]


@pytest.mark.parametrize("name", sorted(families()))
def test_work_grows_with_the_line(name: str) -> None:
    chance = random.Random(2031)
    matcher = Matcher(families()[name])
    lines = (line for path in CASES if path.parent.name == name for line in Log(path, path.name))
    of_row = {hit.row.pattern: line.text.strip() for line in lines if (hit := matcher.hit(line)) and hit.row}
    for text in of_row.values():
        for begin in chance.sample(range(len(text)), k=min(TRIES, len(text))):
            piece = text[begin : begin + chance.choice((8, 21, 55))]
            busy = (text[:begin] + piece * (LINE // len(piece)))[:LINE] + "\x01"
            quick = seconds(matcher, busy) < BUDGET_S or seconds(matcher, busy) < BUDGET_S
            assert quick, (text[:begin], piece)


def seconds(matcher: Matcher, text: str) -> float:
    start = time.process_time()
    matcher.hit(Line(1, text))
    matcher.near(Line(1, text))
    return time.process_time() - start
