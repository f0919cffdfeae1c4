"""The steady rate and its interval, on runs whose truth is known because they were made."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import accumulate
from math import exp, sqrt
from statistics import fmean, median
from typing import NamedTuple

import pytest

from runner.steady import EFFECTIVE, Sample, Steady, intervals, steady

RUNS = 1000
STEPS = 10  # between two records
T_95 = 1.96


class Made(NamedTuple):
    """A run: seconds per step of each record, epoch of each, which are steady, and the truth of those."""

    seconds: list[float]
    epochs: list[int]
    clean: list[bool]
    truth: float
    memory: float  # coefficient of the autoregression


def noise(dice: random.Random) -> Callable[[], float]:
    """Independent values of mean 0 and variance 1: normal, heavy-tailed or skewed."""

    def student(freedom: int) -> float:
        return dice.gauss(0, 1) / sqrt(dice.gammavariate(freedom / 2, 2) / (freedom - 2))

    kinds: Sequence[Callable[[], float]] = (
        lambda: dice.gauss(0, 1),
        lambda: student(3),
        lambda: student(4),
        lambda: dice.choice((-1, 1)) * dice.expovariate(1) / sqrt(2),
        lambda: (dice.lognormvariate(0, 0.5) - exp(0.125)) / sqrt((exp(0.25) - 1) * exp(0.25)),
    )
    return dice.choice(kinds)


def made(seed: int) -> Made:
    """A run of 30 to 3,000 records: warm-up, stalls, slow epoch boundaries, a partial last interval."""
    dice = random.Random(seed)
    number = round(30 * 100 ** dice.random())
    memory = dice.choice((0, 0, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9))
    truth = dice.choice((0.12, 0.55, 3.2))
    width = dice.choice((0.002, 0.005, 0.01, 0.02, 0.03))
    draw, fresh, level, seconds = noise(dice), sqrt(1 - memory**2), 0.0, []
    for at in range(-50, number):
        level = memory * level + fresh * draw()
        if at >= 0:
            seconds.append(truth * (1 + width * level))
    slow = [1.0] * number
    warm_up(dice, slow)
    length = dice.choice((number, number, 20, 50, 200))
    epochs = [at // length for at in range(number)]
    for at in range(length, number, length):
        slow[at] = dice.uniform(0.2, 0.85) if dice.random() < 0.9 else slow[at]
    for _ in range(dice.choice((0, 0, 1, 3, number // 100, number // 50))):
        slow[dice.randrange(number)] = dice.uniform(0.1, 0.85)
    if dice.random() < 0.3:
        slow[-1] = dice.uniform(0.2, 0.7)
    clean = [one == 1 for one in slow]
    return Made([one / how for one, how in zip(seconds, slow, strict=True)], epochs, clean, truth, memory)


def warm_up(dice: random.Random, slow: list[float]) -> None:
    number, depth = len(slow), dice.uniform(0.1, 0.8)
    kind = dice.choice(("none", "first", "exponential", "ramp"))
    if kind == "first":
        slow[0] = 1 - depth
    elif kind == "exponential":
        scale = dice.uniform(0.005, 0.05) * number
        slow[: int(scale * 6) + 1] = [1 - depth * exp(-at / scale) for at in range(int(scale * 6) + 1)]
    elif kind == "ramp":
        length = max(1, round(dice.uniform(0.02, 0.25) * number))
        slow[:length] = [1 - depth * (1 - at / length) for at in range(length)]


def rounded(value: float, digits: int) -> float:
    return float(f"{value:.{digits}g}")


def of_seconds(run: Made, digits: int) -> tuple[Steady | None, float]:
    samples = [
        Sample(at, rounded(one, digits), epoch)
        for at, (one, epoch) in enumerate(zip(run.seconds, run.epochs, strict=True))
    ]
    return steady(samples, seconds=True), run.truth


def of_rates(run: Made, digits: int) -> tuple[Steady | None, float]:
    """Rates whose mean, not that of their inverse, is what the run was made to: 2 - x for 1 / x."""
    samples = [
        Sample(at, rounded((2 - one / run.truth if ok else run.truth / one) / run.truth, digits), epoch)
        for at, (one, epoch, ok) in enumerate(zip(run.seconds, run.epochs, run.clean, strict=True))
    ]
    return steady(samples), 1 / run.truth


def of_running_means(run: Made, digits: int) -> tuple[Steady | None, float]:
    """The rate since the epoch began, as PaddleClas prints it."""
    samples, steps, spent, count = [], [], 0.0, 0
    for at, (one, epoch) in enumerate(zip(run.seconds, run.epochs, strict=True)):
        if at and epoch != run.epochs[at - 1]:
            spent, count = 0.0, 0
        spent, count = spent + STEPS * one, count + STEPS
        samples.append(Sample(at, rounded(count / spent, digits), epoch))
        steps.append(count)
    return steady(intervals(samples, steps)), 1 / run.truth


def ideal_width(run: Made) -> float:
    """Of the interval of one who knows the window and the autocorrelation; relative, both sides."""
    inside = [one for one, ok in zip(run.seconds, run.clean, strict=True) if ok]
    mean = fmean(inside)
    variance = sum((one - mean) ** 2 for one in inside) / (len(inside) - 1)
    return 2 * T_95 * sqrt(variance / effective(run)) / mean


def effective(run: Made) -> float:
    return sum(run.clean) * (1 - run.memory) / (1 + run.memory)


@pytest.mark.parametrize(
    ("kind", "digits", "runs"),
    [
        (of_rates, 17, RUNS),
        (of_seconds, 17, RUNS),
        (of_running_means, 17, RUNS),
        (of_rates, 4, RUNS // 2),
        (of_seconds, 4, RUNS // 2),
        (of_running_means, 6, RUNS // 2),
    ],
)
def test_interval_covers_the_truth(
    kind: Callable[[Made, int], tuple[Steady | None, float]], digits: int, runs: int
) -> None:
    covered, widths, errors, asked, given = 0, [], [], 0, 0
    for seed in range(runs):
        run = made(seed)
        found, truth = kind(run, digits)
        assert found is not None
        errors.append(abs(found.mean / truth - 1))
        asked += effective(run) >= EFFECTIVE
        if found.ci95 is not None:
            low, high = found.ci95
            given += 1
            covered += low <= truth <= high
            widths.append((high - low) / found.mean / ideal_width(run))
    assert covered >= 0.93 * given
    assert median(errors) < 0.005
    assert median(widths) <= 1.5
    assert given >= 0.95 * asked > 0.5 * runs


def test_what_is_left_out_is_named() -> None:
    dice = random.Random(5)
    rates = [100 * (1 + dice.gauss(0, 0.005)) for _ in range(200)]
    epochs = [at // 50 for at in range(200)]
    rates[0], rates[1], rates[2] = 10, 60, 90
    rates[50], rates[77], rates[120], rates[199] = 70, 30, 180, 55
    found = steady(
        [Sample(at, one, epoch) for at, (one, epoch) in enumerate(zip(rates, epochs, strict=True))]
    )
    assert found is not None
    named = dict(found.left_out)
    wanted = {50: "epoch_boundary", 77: "stall", 120: "too_fast", 199: "partial_interval", 0: "warm_up"}
    assert {at: named[at] for at in wanted} == wanted
    assert {1, 2} <= set(named)
    assert found.records == 200 - len(named)
    assert not found.drift


def test_a_long_ramp_is_warm_up_from_end_to_end() -> None:
    dice = random.Random(6)
    rates = [100 * (1 + dice.gauss(0, 0.005)) * min(1, 0.3 + at / 50) for at in range(200)]
    found = steady([Sample(at, one) for at, one in enumerate(rates)])
    assert found is not None
    assert {reason for at, reason in found.left_out if at < 35} == {"warm_up"}
    assert found.first >= 33


def test_running_means_come_apart_into_what_they_were_made_of() -> None:
    seconds = [0.5, 0.25, 0.125, 0.25, 0.5, 0.5]
    sums = [*accumulate(seconds[:4]), *accumulate(seconds[4:])]
    steps = [1, 2, 3, 4, 1, 2]
    means = [Sample(at, count / spent) for at, (count, spent) in enumerate(zip(steps, sums, strict=True))]
    apart = intervals(means, steps)
    assert [1 / one.value for one in apart] == pytest.approx(seconds)


def test_independence_is_not_assumed() -> None:
    """A mean of values that remember each other is less certain than that of as many independent ones."""
    dice, level, values = random.Random(7), 0.0, []
    for _ in range(3000):
        level = 0.8 * level + dice.gauss(0, 0.6)
        values.append(100 + level)
    found = steady([Sample(at, one) for at, one in enumerate(values)])
    assert found is not None
    assert found.effective == pytest.approx(3000 * 0.2 / 1.8, rel=0.3)


@pytest.mark.parametrize("number", [0, 1, 9])
def test_too_few_records_carry_no_rate(number: int) -> None:
    assert steady([Sample(at, 100.0 + at % 3) for at in range(number)]) is None


def test_few_records_carry_a_rate_without_an_interval() -> None:
    found = steady([Sample(at, 100.0 + at % 3) for at in range(20)])
    assert found is not None
    assert found.ci95 is None


def test_figures_that_are_all_alike_are_as_certain_as_their_last_digit() -> None:
    found = steady([Sample(at, 0.55) for at in range(100)], seconds=True)
    assert found is not None
    assert found.ci95 == pytest.approx((0.545, 0.555))


def test_a_change_in_the_middle_is_told() -> None:
    dice = random.Random(11)
    values = [(100 if at < 200 else 97) + dice.gauss(0, 0.5) for at in range(300)]
    found = steady([Sample(at, one) for at, one in enumerate(values)])
    assert found is not None
    assert found.drift


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_what_is_no_rate_is_left_out(value: float) -> None:
    found = steady([Sample(at, 100.0 + at % 3) for at in range(30)] + [Sample(30, value)])
    assert found is not None
    assert (30, "no_figure") in found.left_out


def test_significant_digits_are_no_decimals() -> None:
    """Two digits: of a fast record none is behind the point, of a slow one there is one."""
    dice = random.Random(3)
    values = [float(f"{dice.gauss(15.56, 0.15):.2g}") for _ in range(400)]
    values[200] = 4.2
    found = steady([Sample(at, value) for at, value in enumerate(values)])
    assert found is not None
    assert found.left_out == ((200, "stall"),)
    assert found.ci95 is not None
    assert found.ci95[0] < 15.56 < found.ci95[1]


def test_running_means_that_are_all_alike_are_as_certain_as_their_last_digit() -> None:
    means = [Sample(at, 12.34) for at in range(4000)]
    found = steady(intervals(means, [10 * (at % 100 + 1) for at in range(4000)]))
    assert found is not None
    assert found.ci95 is not None
    assert found.ci95[0] < 12.336
    assert found.ci95[1] > 12.344


def test_what_rounding_does_to_an_interval_is_no_stall() -> None:
    """Late in a long mean, its last digit moves the interval by far more than the steps themselves."""
    dice = random.Random(5)
    spent, means = 0.0, []
    for step in range(1, 2001):
        spent += 0.001 * (1 + dice.gauss(0, 0.0001))
        means.append(Sample(step - 1, round(step / spent, 2)))
    found = steady(intervals(means, range(1, 2001)))
    assert found is not None
    assert [reason for _, reason in found.left_out if reason != "warm_up"] == []
