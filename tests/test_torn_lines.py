"""Lines that broke off, and lines made to keep a pattern busy: no record goes untold, no line takes long.

Every pair under ``tests/parsers`` of the families that write one line per record gives a line to break.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from runner.io.logs import Log
from runner.model import Line, LogRun
from runner.parsers import Known, families, parse
from runner.parsers._engine import Matcher

PAIRS = Path(__file__).parent / "parsers"
TORN = {  # a pair of the family, and how much of a record must be left for it to be known as one
    "dll_tf_resnet50/tf_gpu8_amp_bs64": "DLL 2",
    "dll_tf_resnet50/log_json": "DLLL {",
    "dll_pytorch_resnet50/epochs_amp": "DLL 2",
    "dll_pytorch_resnet50/raport_json": "DLLL {",
    "dll_pytorch_bert/squad": "DLL 2",
    "dll_tf_bert/tf_gpu8_amp_bs64": "DLL 2",
    "dll_mxnet_resnet50/mxnet_gpu8_amp_bs192": "DLL 2",
    "maskrcnn_tf2/traced_mpirun": "[MaskRCNN] INFO    : through",
    "nccl_tests/broadcast_two_hosts": "     2097152       1048576   bfloat16 ",
    "mlperf/resnet": ":::MLLOG {",
    "runkit/reaches_its_target": "runkit st",
}
LONG = 1 << 16
HEADS = (
    *("+ mpirun -np 8 ", "python -m torchrun --nproc_per_node 8 ", "['/python', '-u', 'main.py', "),
    *("DLL 2031-05-06 07:08:09.1 - (0, 10) ", "DLL 2031-05-06 07:08:09.1 - Epoch: 0 Iteration: 1 "),
    *("DLL 2031-05-06 07:08:09.1 - Iteration: 1 ", 'DLLL {"step": [0, 1], "data": {', "DLLL {"),
    *(":::MLLOG {", ':::SYSJSON {"', ":::MLPv0.5.0 resnet 1.5 (", "[MaskRCNN] INFO    : ", "runkit step "),
)
REPEATED = ("main.py --mode=train ", "multiproc.py --nnodes 4 ", '"a": 1, ', "[1, ", "a : 5 ", " ", "0")
MINE = tuple(sorted({log.partition("/")[0] for log in TORN}))


def counted(runs: list[LogRun]) -> int:
    """How many lines look like records and give none."""
    return sum(run.lines_not_used.get(reason, 0) for run in runs for reason in ("near_miss", "no_figure"))


@pytest.mark.parametrize("pair", TORN)
def test_record_that_broke_off_is_told(pair: str) -> None:
    family, least = Known(family=pair.partition("/")[0]), len(TORN[pair])
    lines = list(Log(PAIRS / f"{pair}.log", "a.log"))
    whole = parse(lines, "a.log", family)
    record = whole[0].records[len(whole[0].records) // 2]
    at = next(index for index, line in enumerate(lines) if line.number == record.line)
    text = lines[at].text
    for end in range(least, len(text), max(1, len(text) // 40)):
        torn = Line(record.line, text[:end], lines[at].rank, lines[at].stream)
        runs = parse([*lines[:at], torn, *lines[at + 1 :]], "a.log", family)
        still = [one for run in runs for one in run.records if one.line == record.line]
        assert still or counted(runs) == counted(whole) + 1, text[:end]


@pytest.mark.parametrize("name", MINE)
def test_no_line_keeps_a_pattern_busy(name: str) -> None:
    matcher = Matcher(families()[name])
    for head in HEADS:
        for more in REPEATED:
            line = Line(1, (head + more * (LONG // len(more)))[:LONG])
            began = time.process_time()
            matcher.hit(line)
            matcher.near(line)
            assert time.process_time() - began < 1.5, (head, more)  # it is a few hundredths
