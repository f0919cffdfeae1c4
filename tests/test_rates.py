"""Rules against other implementations: the statistics module, and the arithmetic written out."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.errors import UsageError
from runner.model import Record
from runner.rates import Rule, Scale, all_cards, figure, parse_rule, select

values = st.lists(st.floats(0.1, 1e6), max_size=60)
few = st.integers(0, 30)


def same(found: float | None, wanted: float | None) -> bool:
    return found == wanted if found is None or wanted is None else found == pytest.approx(wanted, rel=1e-12)


@given(values, few)
def test_means_as_the_statistics_module_takes_them(rates: list[float], skip: int) -> None:
    left = rates[skip:]
    for word, mean in {
        "mean": statistics.fmean,
        "harmonic": statistics.harmonic_mean,
        "median": statistics.median,
    }.items():
        assert same(figure(parse_rule(f"{word}:skip={skip}"), rates, {}), mean(left) if left else None)


@given(values, st.integers(1, 80))
def test_tail_is_the_end_of_the_log(rates: list[float], tail: int) -> None:
    wanted = statistics.fmean(rates[max(0, len(rates) - tail) :]) if rates else None
    assert same(figure(parse_rule(f"mean:tail={tail}"), rates, {}), wanted)


@given(st.lists(st.sampled_from([1.0, 2.0, 3.0]), min_size=1))
def test_mode_is_the_most_frequent(rates: list[float]) -> None:
    assert figure(parse_rule("mode"), rates, {}) == statistics.mode(rates)


@pytest.mark.parametrize(
    ("records", "skip", "dropped_at_each_end"),
    [(11, 0, 5), (30, 10, 5), (119, 0, 5), (120, 0, 6), (139, 0, 6), (140, 0, 7), (150, 10, 7)],
)
def test_trim_drops_five_or_five_per_cent(records: int, skip: int, dropped_at_each_end: int) -> None:
    rates = [float(n * 7919 % records) for n in range(records)]  # shuffled, no two equal
    kept = sorted(rates[skip:])[dropped_at_each_end : records - skip - dropped_at_each_end]
    rule = parse_rule(f"trim:skip={skip}")
    assert list(select(rule, rates)) == kept
    assert figure(rule, rates, {}) == pytest.approx(sum(kept) / len(kept))


def test_nothing_left_gives_no_figure() -> None:
    assert figure(parse_rule("trim:skip=0"), [1.0] * 10, {}) is None
    assert figure(parse_rule("trim:skip=0"), [1.0] * 11, {}) == 1.0
    assert figure(parse_rule("mean:skip=5"), [1.0] * 5, {}) is None
    assert figure(parse_rule("mode"), [], {}) is None


def test_summary_is_the_log_s_own_figure() -> None:
    own = {"total_ips": 5.0, "compute_ips": 6.0}
    assert figure(parse_rule("summary"), [1.0], own) == 5.0
    assert figure(parse_rule("summary:compute_ips"), [1.0], own) == 6.0
    assert figure(parse_rule("summary:other"), [1.0], own) is None
    assert figure(parse_rule("summary"), [1.0], {}) is None


def test_harmonic_of_a_standstill_is_zero() -> None:
    assert figure(parse_rule("harmonic:skip=0"), [5.0, 0.0], {}) == 0.0


GOOD = {
    "mean:skip=5": Rule("mean", skip=5),
    "mean:tail=90": Rule("mean", tail=90),
    "harmonic:skip=2": Rule("harmonic", skip=2),
    "median:skip=1": Rule("median", skip=1),
    "mode": Rule("mode"),
    "trim:skip=10": Rule("trim", skip=10),
    "summary": Rule("summary"),
    "summary:total_ips": Rule("summary", key="total_ips"),
}


@pytest.mark.parametrize(("text", "rule"), GOOD.items())
def test_rule_is_taken_apart(text: str, rule: Rule) -> None:
    assert parse_rule(text) == rule


BAD = [
    "",
    "mean",
    "mean:skip=-1",
    "mean:skip=x",
    "mean:tail=0",
    "trim:tail=5",
    "mode:skip=1",
    "summary:",
    "mean:skip=5 ",
    "mean:skip=\u0665",
]


@pytest.mark.parametrize("text", BAD)
def test_nonsense_is_no_rule(text: str) -> None:
    with pytest.raises(UsageError, match="rule"):
        parse_rule(text)


def test_every_scope_becomes_a_rate_for_all_cards() -> None:
    scale = Scale(cards=32, hosts=4, threads=16, global_batch=128)
    rated = [Record(line=1, rate=10.0)]
    timed = [Record(line=1, step_s=0.63)]
    assert all_cards(rated, "global", scale) == [10.0]
    assert all_cards(rated, "per_card", scale) == [320.0]
    assert all_cards(rated, "per_host", scale) == [40.0]
    assert all_cards(rated, "per_thread", scale) == [640.0]
    assert all_cards(timed, "seconds_per_step", scale) == pytest.approx([203.1746], rel=1e-6)


@pytest.mark.parametrize("scope", ["per_card", "per_host", "per_thread", "seconds_per_step"])
def test_unknown_scale_is_not_guessed(scope: str) -> None:
    assert all_cards([Record(line=1, rate=10.0, step_s=0.5)], scope, Scale()) == []


def test_harmonic_mean_of_rates_is_the_rate_of_the_mean_step_time() -> None:
    times = [0.5, 0.4, 0.45, 0.61]
    records = [Record(line=1, step_s=time) for time in times]
    rates = all_cards(records, "seconds_per_step", Scale(global_batch=64))
    assert figure(parse_rule("harmonic:skip=0"), rates, {}) == pytest.approx(64 / statistics.fmean(times))
