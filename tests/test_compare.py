"""Two sets of figures side by side: what pairs, what is more than noise, what is not like for like."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.comparable import REASONS
from runner.comparing import Compared, Side, compare, mean_ratio
from runner.steady import Sample, steady
from runner.uncertainty import NORMAL
from tests.kit import run

ONE = Side(
    "a", "dll_tf_resnet50 ResNet50", 8, (1000.0,), "steady", "images/sec", "amp", 64, "V100", "throughput"
)


def pair(one: Side, other: Side) -> Compared:
    (found,), alone = compare([one], [other])
    assert not alone
    return found


@pytest.mark.parametrize(
    ("reason", "change"),
    [
        ("batch_size", {"batch_size": 128}),
        ("precision", {"precision": "fp32"}),
        ("unit", {"unit": "sequences/sec"}),
        ("hardware", {"hardware": "A100"}),
        ("averaging", {"rule": "mean:skip=5"}),
        ("mode", {"mode": "accuracy"}),
        ("date", {"date": "2031-05-06"}),
        ("hardware", {"driver": "450.80.02"}),
    ],
)
def test_what_is_not_like_for_like(reason: str, change: dict[str, Any]) -> None:
    found = pair(
        replace(ONE, date="2031-05-05", driver="470.83.01"),
        replace(ONE, **{"date": "2031-05-05", "driver": "470.83.01", **change}),
    )
    assert found.reasons == (reason,)
    assert mean_ratio([found], ()) is None
    assert mean_ratio([found], (reason,)) == pytest.approx(1)
    assert reason in REASONS


def test_what_is_unknown_is_no_difference() -> None:
    unknown = Side("b", ONE.what, 8, (1100.0,), "steady", None)
    found = pair(ONE, unknown)
    assert found.reasons == ()
    assert found.ratio == pytest.approx(1.1)


def test_mixed_precision_has_two_names() -> None:
    assert pair(ONE, replace(ONE, precision="fp16")).reasons == ()


def test_the_same_setting_pairs_first() -> None:
    others = [replace(ONE, batch_size=128, rates=(2.0,)), replace(ONE, rates=(1010.0,))]
    pairs, alone = compare([ONE], others)
    assert [found.b.rate for found in pairs] == [1010.0]
    assert alone == others[:1]
    assert compare([ONE], [replace(ONE, cards=1)])[0] == []
    assert compare([ONE], [replace(ONE, what="mmseg DeepLabV3P")])[0] == []


def test_repeats_are_held_against_each_other_by_welch() -> None:
    """By hand: variances of the mean logarithms 9.80e-5 and 8.12e-5, 1.98 degrees of freedom, t is 4.35."""
    found = pair(replace(ONE, rates=(1000.0, 1020.0)), replace(ONE, rates=(1100.0, 1120.0)))
    assert found.ratio == pytest.approx((1100 * 1120 / 1000 / 1020) ** 0.5)
    assert found.ci95 is not None
    assert found.ci95 == pytest.approx((1.0369, 1.1648), abs=5e-4)
    assert found.changed


def test_a_single_run_without_an_interval_says_nothing_of_a_change() -> None:
    found = pair(ONE, replace(ONE, rates=(2000.0,), error=0.001))
    assert (found.ci95, found.changed) == (None, None)


def run_of(dice: random.Random, rate: float) -> Side:
    """A run of 400 to 900 records with memory, a warm-up and a stall."""
    memory, level, values = dice.choice((0.0, 0.3, 0.6)), 0.0, []
    for _ in range(dice.randrange(400, 900)):
        level = memory * level + dice.gauss(0, (1 - memory**2) ** 0.5)
        values.append(rate * (1 + 0.01 * level))
    values[0] *= 0.2
    values[dice.randrange(1, len(values))] *= 0.5
    found = steady([Sample(at, one) for at, one in enumerate(values)])
    assert found is not None
    assert found.ci95 is not None
    error = (found.ci95[1] - found.ci95[0]) / 2 / NORMAL / found.mean
    return replace(ONE, rates=(found.mean,), error=error)


def test_false_alarms_and_changes_that_are_found() -> None:
    dice = random.Random(3)
    same = [pair(run_of(dice, 1000), run_of(dice, 1000)).changed for _ in range(400)]
    faster = [pair(run_of(dice, 1000), run_of(dice, 1010)).changed for _ in range(50)]
    assert sum(map(bool, same)) < 0.05 * len(same)
    assert sum(map(bool, faster)) > 0.9 * len(faster)


def log(path: Path, rate: float, batch: int = 64) -> None:
    dice = random.Random(rate)
    head = f"DLL 2031-05-06 07:00:00.0 - PARAMETER arch : resnet50  batch_size : {batch}  use_tf_amp : True"
    stamps = [f"DLL 2031-05-06 07:{at // 60:02}:{at % 60:02}.475140 - (0, {10 * at})" for at in range(200)]
    lines = [f"{stamp} total_ips : {dice.gauss(rate, 4):.1f} " for stamp in stamps]
    path.mkdir()
    (path / "train.txt").write_text("\n".join([head, "Num GPUs 8", *lines]) + "\n")


def test_two_folders_of_logs(tmp_path: Path) -> None:
    log(tmp_path / "before", 1000)
    log(tmp_path / "after", 1050)
    done = run("compare", tmp_path / "before", tmp_path / "after", "--json")
    (row,) = json.loads(done.stdout)["rows"]
    assert row["ratio"] == pytest.approx(1.05, abs=0.003)
    assert row["ci95"][0] < 1.05 < row["ci95"][1]
    assert (row["changed"], row["comparable"], row["reasons"], done.returncode) == (True, True, [], 0)


def test_another_batch_size_is_told_and_left_out(tmp_path: Path) -> None:
    log(tmp_path / "before", 1000)
    log(tmp_path / "after", 1050, batch=128)
    done = run("compare", tmp_path / "before", tmp_path / "after")
    assert done.returncode == 1
    assert "batch_size (64 / 128)" in done.stdout
    assert "--repeat shows that between runs" in done.stdout
    assert "geometric mean" not in done.stdout
    done = run("compare", tmp_path / "before", tmp_path / "after", "--allow", "batch_size")
    assert done.returncode == 0
    assert "geometric mean: 1.0" in done.stdout


def test_a_published_report_on_one_side(tmp_path: Path) -> None:
    log(tmp_path / "mine", 9310, batch=256)
    done = run("compare", "resnet50_ngc_tensorflow1", tmp_path / "mine", "--json")
    (row,) = json.loads(done.stdout)["rows"]
    assert (row["a"]["rate"], row["b"]["rule"], row["changed"]) == (9310.31, "mean:skip=5", None)
    assert row["ratio"] == pytest.approx(1, abs=0.001)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["gone", "docs"], "gone: no such run, folder of logs, log or published report"),
        (["resnet50_ngc_pytorc", "docs"], "nearest: resnet50_ngc_pytorch"),
        (["docs", "docs", "--allow", "batch"], "--allow batch: unknown; nearest: batch_size"),
    ],
)
def test_what_cannot_be_compared(words: list[str], said: str) -> None:
    done = run("compare", *words)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert said in done.stderr


@pytest.mark.parametrize(("left", "right"), [(1, 2), (1, 5), (2, 5), (5, 5)])
def test_runs_that_differ_by_themselves_are_no_change(left: int, right: int) -> None:
    """Runs of one setting lie 0.3 % apart; what a run knows of its own noise is much less."""
    dice, alarms = random.Random(left * 10 + right), 0
    for _ in range(2000):
        sides = [
            replace(
                ONE,
                rates=tuple(1000 * (1 + dice.gauss(0, 0.003)) for _ in range(number)),
                error=0.0005 if number == 1 else None,
            )
            for number in (left, right)
        ]
        alarms += pair(*sides).changed is True
    assert alarms <= 0.06 * 2000  # 5 %, and two standard errors
