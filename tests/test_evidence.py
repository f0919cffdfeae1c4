"""What counts as a measurement. Each case takes one thing away from a good cell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from runner import parsers
from runner.evidence import Traces, document, judge
from runner.model import Cell, Deadlines, Line, LogRun, Placement, Problem

CELL = Cell(
    id="digits.throughput.c04.fp32.bs8.r1",
    workload="digits",
    mode="throughput",
    cards=4,
    precision="fp32",
    batch_size=8,
    repeat=1,
    state="planned",
    reason=None,
    placement=(Placement("lab1", 2), Placement("lab2", 2)),
    argv=("mpirun",),
    env={},
    hostfile=None,
    unit="images/sec",
    family="runkit",
    log_name="digits_gpu4_fp32_bs8.log",
    progress="",
    deadlines=Deadlines(1, 1, 1),
    estimated_s=1,
    target=None,
)
STARTED = {"event": "cell_started", "cell": CELL.id}
ENDED = {
    "event": "cell_ended",
    "cell": CELL.id,
    "outcome": "exited",
    "status": 0,
    "reason": "mpirun exited with 0",
}
START = (
    "runkit start workload=digits cards=4 hosts=2 batch_size=8 global_batch=32 precision=fp32 unit=images/sec"
)
ALONE = "node1:1:1 [0] NCCL INFO comm 0x1 rank 0 nranks 1 cudaDev 0 busId 1f000 - Init COMPLETE"
SUMMARY = "runkit summary steps=12 epochs=1 time=3.5 images=384 rate=110.5 loss=0.1 accuracy=0.9 ranks=4"


def log(start: str = START, steps: int = 12, loss: str = "0.5", end: str = SUMMARY) -> LogRun:
    text = [
        start,
        *(
            f"runkit step step={step} epoch=0 time={step / 4} loss={loss} step_time=0.25 rate=128.0"
            for step in range(steps)
        ),
        end,
    ]
    texts = "\n".join(text).split("\n")
    lines = [Line(number, line, 0, "stdout") for number, line in enumerate(texts, 1) if line]
    made = parsers.parse_cell(lines, CELL.log_name, parsers.Known(family="runkit"))
    assert isinstance(made, LogRun)
    return made


def rank(number: int, host: str, world: int | None = 4) -> dict[str, Any]:
    return {"rank": number, "host": host, "world_size": world}


RANKS = (rank(0, "lab1"), rank(1, "lab1"), rank(2, "lab2"), rank(3, "lab2"))
GOOD = Traces(events=(STARTED, ENDED), ranks=RANKS, log=log(), unread=None, last_words=())


def test_measured() -> None:
    result = judge(CELL, GOOD)
    assert (result.state, result.reason, result.rate, result.records) == ("measured", None, 110.5, 12)
    assert (result.accuracy, result.time_to_train_s) == (0.9, None)


def test_time_to_train_is_that_of_a_training_that_goes_to_its_end() -> None:
    assert judge(replace(CELL, mode="accuracy"), GOOD).time_to_train_s == 3.5


def ended(**changes: Any) -> Callable[[Traces], Traces]:
    return lambda good: replace(good, events=(STARTED, {**ENDED, **changes}))


def said(*last_words: tuple[str, str]) -> Callable[[Traces], Traces]:
    return lambda good: replace(
        good, events=(STARTED, {**ENDED, "status": 1, "reason": "x"}), last_words=last_words
    )


@pytest.mark.parametrize(
    ("take_away", "state", "reason"),
    [
        (lambda good: replace(good, events=()), "planned", "not started"),
        (lambda good: replace(good, events=(STARTED,)), "running", "not ended yet"),
        (lambda good: replace(good, events=(STARTED, {"event": "agent_lost"})), "lost", "the agent was lost"),
        (ended(outcome="timeout", reason="no record for 60 s"), "timeout", "no record for 60 s"),
        (ended(outcome="stopped", reason="stopped on request"), "stopped", "stopped on request"),
        (ended(status=1, reason="mpirun exited with 1"), "failed", "mpirun exited with 1"),
        (ended(status=None), "failed", "exited"),
        (
            said(("rank 1", "hello"), ("rank 3", "OSError: no"), ("launcher", "error")),
            "failed",
            "rank 3: OSError: no (x)",
        ),
        (said(("launcher", "no slots")), "failed", "launcher: no slots (x)"),
        (lambda good: replace(good, ranks=RANKS[:3]), "failed", "3 of 4 ranks ran"),
        (
            lambda good: replace(good, ranks=(*RANKS[:3], rank(3, "lab1"))),
            "failed",
            "ranks ran on lab1 (3), lab2 (1)",
        ),
        (lambda good: replace(good, ranks=(*RANKS[:3], rank(2, "lab2"))), "failed", "4 of 4 ranks ran"),
        (
            lambda good: replace(good, ranks=tuple(rank(n, one["host"], 1) for n, one in enumerate(RANKS))),
            "failed",
            "a rank saw a world of 1 ranks",
        ),
        (lambda good: replace(good, log=None, unread="no record"), "failed", "no record"),
        (lambda good: replace(good, log=log(loss="nan")), "failed", "the loss is not finite"),
        (lambda good: replace(good, log=log(end="")), "failed", "the log ends before the training does"),
        (lambda good: replace(good, log=log(steps=9)), "failed", "9 records; a rate needs at least 10"),
        (
            lambda good: replace(good, log=log(START.replace("cards=4", "cards=8"))),
            "failed",
            "the log says cards 8",
        ),
        (
            lambda good: replace(good, log=log(START.replace("batch_size=8", "batch_size=9"))),
            "failed",
            "the log says batch size 9, planned was 8",
        ),
        (
            lambda good: replace(good, log=log(START.replace("fp32", "fp16"))),
            "failed",
            "the log says precision fp16",
        ),
        (
            lambda good: replace(good, log=log(start=f"{ALONE}\n{START}")),
            "failed",
            "NCCL joined other ranks than the log speaks of: cards: the log says 4, NCCL in it 1",
        ),
        (
            lambda good: replace(good, log=replace(log(), transport={"between_hosts": []}, hosts=1)),
            "failed",
            "the ranks that talked to one another were on 1 hosts, planned were 2",
        ),
        (
            lambda good: replace(good, log=log(end=SUMMARY + " parameters_sha256=00 parameters_agree=false")),
            "failed",
            "the ranks ended with different parameters",
        ),
    ],
)
def test_not_measured(take_away: Callable[[Traces], Traces], state: str, reason: str) -> None:
    result = judge(CELL, take_away(GOOD))
    assert result.state == state
    assert reason in (result.reason or "")
    assert result.rate is None


def test_mixed_precision_goes_by_two_names() -> None:
    amp = replace(CELL, precision="amp")
    assert judge(amp, replace(GOOD, log=log(START.replace("fp32", "fp16")))).state == "measured"


def test_target_not_reached() -> None:
    result = judge(replace(CELL, mode="time_to_train", target=0.97), GOOD)
    assert (result.state, result.reason) == ("failed", "the target 0.97 was not reached")


def test_refused() -> None:
    refused = replace(CELL, state="refused", reason="no such card")
    assert judge(refused, replace(GOOD, events=())).reason == "no such card"


def test_the_newest_try_counts() -> None:
    crashed = {**ENDED, "status": 1}
    assert judge(CELL, replace(GOOD, events=(STARTED, crashed, STARTED, ENDED))).state == "measured"
    assert judge(CELL, replace(GOOD, events=(STARTED, ENDED, STARTED, crashed))).state == "failed"
    lost = {"event": "agent_lost"}
    assert judge(CELL, replace(GOOD, events=(STARTED, lost, {**STARTED, "t": 2}))).state == "running"


def test_problems_that_do_not_forbid_a_figure_stand_beside_it() -> None:
    odd = Problem("decode_errors", 3, "2 bytes")
    result = judge(CELL, replace(GOOD, log=replace(log(), problems=(odd,))))
    assert (result.state, result.problems) == ("measured", (odd,))


def test_evidence_says_who_ran() -> None:
    body = document(CELL, GOOD)
    assert (body["hosts"], body["world_size"], body["window"]["records"]) == ({"lab1": 2, "lab2": 2}, 4, 12)
