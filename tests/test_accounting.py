"""Nothing is left out in silence: every line that looks like a record is used, or counted with the reason."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner import rates
from runner.cli import main
from runner.io.logs import Log
from runner.model import Line, LogRun
from runner.parsers import Known, detect, families, parse
from runner.parsers._engine import Matcher
from tests.test_parsers import CASES, REAL

RULES = ("mean:skip=3", "mean:tail=4", "trim:skip=2", "summary")
LOGS = [
    *((path, (None, *RULES)) for path in CASES),
    *((path, (None,)) for path in sorted(REAL.glob("*/*")) if path.suffix in (".log", ".txt")),
]


def looking_like_records(path: Path, family: str) -> Iterator[Line]:
    """What a reader would take for a record: the lines that the agent counts, and those that nearly are."""
    table = families()[family]
    progress, near = re.compile(table.progress), re.compile(table.near, re.ASCII)
    reader = Matcher(table)
    for line in Log(path, path.name):
        understood = reader.hit(line)
        other = understood is not None and understood.row is not None and understood.row.kind != "record"
        if progress.search(line.text) or (near.search(line.text) and not other):
            yield line


@pytest.mark.parametrize(("path", "rules"), LOGS, ids=lambda one: getattr(one, "stem", ""))
def test_used_and_not_used_are_all(path: Path, rules: tuple[str | None, ...]) -> None:
    for family in detect(Log(path, path.name)):
        looking = sum(1 for _ in looking_like_records(path, family))
        for rule in rules:
            runs = parse(Log(path, path.name), path.name, Known(family=family, rule=rule))
            used = sum(rates.used(run, run.rule) for run in runs)
            assert used + sum(sum(run.lines_not_used.values()) for run in runs) == looking


RECORD = "DLL 2031-05-06 07:08:09.1 - (0, {}) total_ips : {} "


def run_of(*texts: str, rule: str = "mean:skip=0", ranks: tuple[int | None, ...] = ()) -> LogRun:
    given = ranks or (None,) * len(texts)
    lines = [Line(at, text, rank) for at, (text, rank) in enumerate(zip(texts, given, strict=True), 1)]
    return parse(lines, "a.log", Known(rule=rule))[-1]


GOOD = [RECORD.format(10 * step, 5.0) for step in range(1, 31)]
REASONS: list[tuple[str, list[str], dict[str, int]]] = [
    ("mean:skip=0", GOOD, {}),
    ("mean:skip=5", GOOD, {"warm_up": 5}),
    ("mean:skip=50", GOOD, {"warm_up": 30}),
    ("mean:tail=4", GOOD, {"before_tail": 26}),
    ("trim:skip=10", GOOD, {"warm_up": 10, "trimmed": 10}),
    ("trim:skip=25", GOOD, {"warm_up": 25, "trimmed": 5}),
    ("summary", GOOD, {"own_figure": 30}),
    ("mean:skip=0", [*GOOD, RECORD.format(310, "nan"), RECORD.format(320, "None")], {"no_figure": 2}),
    (
        "mean:skip=0",
        [*GOOD, RECORD.format(310, "5.0 and more"), "DLL 2031 - (0, 3) total_"],
        {"near_miss": 2},
    ),
]


@pytest.mark.parametrize(("rule", "texts", "reasons"), REASONS)
def test_reason_is_the_one_that_holds(rule: str, texts: list[str], reasons: dict[str, int]) -> None:
    assert run_of(*texts, rule=rule).lines_not_used == reasons


def test_records_of_other_ranks_are_counted() -> None:
    run = run_of(*GOOD[:4], ranks=(1, 0, 0, None))
    assert (len(run.records), run.lines_not_used) == (2, {"other_rank": 2})


def test_records_whose_scale_is_unknown_are_counted() -> None:
    text = "2031-05-06 07:08:09,123 - mmseg - INFO - Iter [{}/9]\tlr: 1.0e-02, time: 0.5, loss: 1.0"
    lines = [Line(at, text.format(at), None) for at in range(1, 9)]
    (run,) = parse(lines, "a.log")
    assert run.lines_not_used == {"scale_unknown": 8}
    assert parse(lines, "gpu8_bs2.log")[0].lines_not_used == {"warm_up": 2}


# --- records that measured something else -----------------------------------------------------

FAIRSEQ = "Transformer | epoch {} | step {} |avg loss 7.5 |avg tokens 9.0 |tokens/s {} |walltime 9.5 |"
MMSEG = (
    "2031-05-06 07:08:09,123 - mmseg - INFO - Iter [{}/99]\tlr: 1.0e-02, eta: 0:00:01, time: {}, loss: 1.0"
)
SAVING = "2031-05-06 07:08:09,123 - mmseg - INFO - Saving checkpoint at 40 iterations"


def fairseq(*said: tuple[int, int, float]) -> list[str]:
    return [FAIRSEQ.format(*one) for one in said]


STEADY = [(0, 10 * step, 21000.0 + step) for step in range(1, 20)]
SLOW: dict[str, tuple[list[str], list[tuple[int, str]]]] = {
    "none": (fairseq(*STEADY), []),
    "warm-up": (fairseq((0, 5, 900.0), (0, 8, 9000.0), *STEADY), []),
    "a new epoch": (
        fairseq(*STEADY, (1, 6, 3358.0), (1, 16, 21000.0)),
        [(20, "1 at the beginning of an epoch (line 20)")],
    ),
    "fewer steps": (
        fairseq(*STEADY, (0, 193, 3358.0)),
        [(20, "1 of fewer steps than the others (line 20)")],
    ),
    "the last of the log": (fairseq(*STEADY, (0, 200, 179.0)), [(20, "1 at the end of the log (line 20)")]),
    "amid the others": (
        fairseq(*STEADY, (0, 200, 179.0), (0, 210, 21000.0), (0, 220, 20.0), (0, 230, 21000.0)),
        [(20, "2 with no cause in the log (lines 20, 22)")],
    ),
    "a checkpoint": (
        [
            *(MMSEG.format(4 * at, 0.445 + at % 3 / 100) for at in range(1, 11)),
            SAVING,
            MMSEG.format(44, 0.568),
        ],
        [(12, "1 after a checkpoint (line 12)")],
    ),
    "noise": (fairseq(*((0, 10 * at, 20000.0 + 3000 * (at % 3)) for at in range(1, 40))), []),
    "too few": (fairseq((0, 10, 21000.0), (0, 20, 100.0)), []),
}


@pytest.mark.parametrize("why", SLOW)
def test_slow_records_are_named_and_counted_all_the_same(why: str) -> None:
    texts, wanted = SLOW[why]
    (run,) = parse([Line(at, text) for at, text in enumerate(texts, 1)], "gpu1_bs4.log")
    found = [problem for problem in run.problems if problem.code == "stall"]
    assert [problem.line for problem in found] == [line for line, _ in wanted]
    assert all(text in problem.detail for problem, (_, text) in zip(found, wanted, strict=True))
    assert rates.used(run, "mean:skip=0") == len(run.records) == len(texts) - (why == "a checkpoint")


# --- one log under several names ---------------------------------------------------------------


def test_copy_of_a_log_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, texts in {"gpu8.log": GOOD, "gpu32.log": GOOD, "gpu1.log": GOOD[:20]}.items():
        (tmp_path / name).write_text("\n".join(texts), "utf-8")
    assert main(["parse", str(tmp_path), "--json"]) == 0
    runs = json.loads(capsys.readouterr().out)
    told = {
        run["log"]: [one["detail"] for one in run["problems"] if one["code"] == "same_log_twice"]
        for run in runs
    }
    assert told == {
        "gpu1.log": [],
        "gpu32.log": ["the same log lies under other names: gpu8.log"],
        "gpu8.log": ["the same log lies under other names: gpu32.log"],
    }


def test_a_run_for_people_says_what_is_not_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "a.log"
    channel = "node1:1:1 [0] NCCL INFO Channel 00 : 0[1f000] -> 8[1f000] [send] via NET/Socket/0"
    log.write_text("\n".join([channel, *GOOD, RECORD.format(310, "nan")]), "utf-8")
    assert main(["parse", str(log)]) == 0
    shown = capsys.readouterr().out
    assert "  not used  1 no_figure, 5 warm_up\n" in shown
    assert "  transport NET/Socket without GPUDirect RDMA\n" in shown


def test_every_problem_and_reason_is_in_the_contract() -> None:
    root = Path(__file__).parents[1]
    sources = [path.read_text("utf-8") for path in (root / "runner").rglob("*.py")]
    codes = {code for text in sources for code in re.findall(r'Problem\(\s*"(\w+)"', text)}
    reasons = {key for _, _, counts in REASONS for key in counts} | {"other_rank", "no_rate", "scale_unknown"}
    contract = (root / "docs/contracts.md").read_text("utf-8")
    told = {
        code for row in re.findall(r"^\| (`.*?) \|", contract, re.M) for code in re.findall(r"`(\w+)`", row)
    }
    assert codes - {"not_recognized"} <= told
    assert reasons <= told
