"""The steady rate of runs that were found in logs, for all cards, also behind running means."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from runner.gathering import read
from runner.io.logfolders import walk
from runner.model import LogRun
from runner.parsers import NOTHING_KNOWN


def run_of(path: Path, lines: Sequence[str]) -> LogRun:
    path.write_text("\n".join(lines) + "\n")
    (log,) = walk(path)
    (found,) = read(log, NOTHING_KNOWN).runs
    return found


def seconds(number: int, mean: float) -> list[float]:
    """Seconds per step, slow at first and at a stall."""
    dice = random.Random(number)
    made = [mean * (1 + dice.gauss(0, 0.01)) for _ in range(number)]
    made[0] *= 8
    made[number // 2] *= 30
    return made


def test_mmseg_states_seconds_per_step(tmp_path: Path) -> None:
    lines = ["2031-05-06 07:00:00,000 - mmseg - INFO - Distributed training: True", "samples_per_gpu=4,"]
    for at, one in enumerate(seconds(300, 0.5)):
        head = f"2031-05-06 07:{at // 60:02}:{at % 60:02},000 - mmseg - INFO - Iter [{50 * (at + 1)}/20000]"
        rest = (
            f"eta: 1:00:00, time: {one:.4f}, data_time: 0.010, memory: 9000, decode.loss_seg: 0.5, loss: 0.5"
        )
        lines.append(f"{head}\tlr: 1.0e-02, {rest}")
    found = run_of(tmp_path / "GPUx8_bs4.log", lines)
    assert found.steady is not None
    assert found.steady["rate"] == pytest.approx(8 * 4 / 0.5, rel=0.002)
    assert found.steady["ci95"][0] < 64 < found.steady["ci95"][1]
    assert {one["record"]: one["reason"] for one in found.steady["left_out"]} == {0: "warm_up", 150: "stall"}


def test_paddleclas_prints_the_mean_since_the_epoch_began(tmp_path: Path) -> None:
    """600 records of 10 steps in 3 epochs: the interval is that of independent steps."""
    lines, spent, steps = [], 0.0, 0
    for at, one in enumerate(seconds(600, 0.2)):
        epoch, place = divmod(at, 200)
        if place == 0:
            spent, steps = 0.0, 0
        spent, steps = spent + 10 * one, steps + 10
        head = f"[2031/05/06 07:{at // 60:02}:{at % 60:02}] ppcls INFO: epoch:{epoch}   "
        cost = f"batch_cost: {spent / steps:.5f} s, reader_cost: 0.00100 s, ips: {256 * steps / spent:.5f}"
        losses = "lr: 0.100000, loss:  6.9 top1:  0.01 top5:  0.05"
        lines.append(f"{head}train step:{10 * (place + 1)}   {losses} {cost} samples/sec.")
    found = run_of(tmp_path / "gpu1_fp32_bs256.log", lines)
    assert found.steady is not None
    low, high = found.steady["ci95"]
    assert low < 1280 < high
    assert 0.0005 < (high - low) / 1280 < 0.004  # 2 x 1.96 x 1 % / root of 598 is 0.0016
    assert "running_average" in [problem.code for problem in found.problems]


def test_maskrcnn_prints_the_mean_since_step_100(tmp_path: Path) -> None:
    """Neighbours of running means agree to a digit: they must not look like certainty."""
    lines, total = [], 0.0
    for at, one in enumerate(seconds(190, 0.1)):
        total += one
        rate = 8 / one if at < 20 else 8 * (at - 19) / (total - sum(seconds(190, 0.1)[:20]))
        lines += [
            f"[MaskRCNN] INFO    : timestamp: 1600000000.0{at:03}",
            f"[MaskRCNN] INFO    : global step: {5 * (at + 1)}",
            f"[MaskRCNN] INFO    : throughput: {rate:.1f} samples/sec",
        ]
    found = run_of(tmp_path / "tf_gpu1_amp_bs8.txt", lines)
    assert len(found.records) == 190
    assert found.steady is None or found.steady["ci95"] is None


def test_few_records_say_so(tmp_path: Path) -> None:
    lines = [
        f"DLL 2031-05-06 07:01:{at:02}.475140 - (0, {at}) total_ips : {400 + at % 3}.0 " for at in range(30)
    ]
    found = run_of(tmp_path / "tf_gpu8_amp_bs64.txt", lines)
    assert found.steady is not None
    assert found.steady["ci95"] is None
    assert "no_interval" in [problem.code for problem in found.problems]


def test_records_without_a_steady_rate_say_so(tmp_path: Path) -> None:
    lines = [f"DLL 2031-05-06 07:00:0{at}.000000 - (0, {at}) total_ips : 100.{at}" for at in range(9)]
    found = run_of(tmp_path / "tf_gpu8_amp_bs256.txt", lines)
    assert found.steady is None
    assert "no_interval" in [problem.code for problem in found.problems]


@pytest.mark.parametrize(("begins", "every"), [(10, 10), (5, 10), (10, 20)])
def test_paddleclas_begins_its_mean_anew_after_the_first_steps(
    tmp_path: Path, begins: int, every: int
) -> None:
    """A stall right behind the new beginning must not make all that comes later look fast."""
    dice = random.Random(begins)
    lines, spent, steps = [], 0.0, 0
    for step in range(2000):
        if step in (0, begins):
            spent, steps = 0.0, 0
        spent += 0.1 * (1 + dice.gauss(0, 0.01)) * (100 if step == begins + 3 else 1)
        steps += 1
        if step % every:
            continue
        dynamic = f"[Train][Epoch 1/1][Iter: {step}/2000]lr: 0.1, top1: 0.1, loss: 6.9, "
        where = f"epoch:0   train step:{step}   lr: 0.1, loss:  6.9 " if begins == 10 else dynamic
        unit = "samples/sec." if begins == 10 else "samples/s, eta: 0:01:00"
        ips = f"ips: {25.6 * steps / spent:.5f} {unit}"
        cost = f"batch_cost: {spent / steps:.5f} s, reader_cost: 0.00100 s, "
        lines.append(f"[2031/05/06 07:00:00] ppcls INFO: {where}{cost}{ips}")
    found = run_of(tmp_path / "gpu1_fp32_bs256.log", lines)
    assert found.steady is not None
    low, high = found.steady["ci95"]
    assert low < 256 < high
    assert high / low < 1.006


@pytest.mark.parametrize("last", [2, 100])
def test_steps_counted_over_all_epochs_are_taken_apart_by_epoch(tmp_path: Path, last: int) -> None:
    """Each epoch of fairseq 0.9 has ``last`` steps behind its last record."""
    lines, of_epoch = ["| training on 1 GPUs"], 1000 + last
    dice = random.Random(last)
    for epoch in range(4):
        spent = 0.0
        for step in range(1, of_epoch):
            spent += 0.1 * (1 + dice.gauss(0, 0.05)) * (300 if step == 30 else 1)
            if step % 20 == 0 and step <= 1000:
                wps = f"wps={1e6 * step / spent / 10:.0f}, ups=3, num_updates={epoch * of_epoch + step + 1}"
                lines.append(f"| epoch {epoch + 1:03}: {step:6} / {of_epoch} loss=9.1, {wps}, wall=1")
    found = run_of(tmp_path / "x.log", lines)
    assert found.steady is not None
    low, high = found.steady["ci95"]
    assert low < 1e6 < high
    assert high / low < 1.01
