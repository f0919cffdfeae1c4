"""The steady rate of a run found in a log: from its records to what ``parse --json`` says of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from runner.model import LogRun, Problem, Record
from runner.parsers import families
from runner.parsers._values import count
from runner.rates import scale_of
from runner.steady import EFFECTIVE, LEAST, Sample, Steady, intervals, steady

RUNNING = "running_average"  # the problem that a family names where its records are running means


def steadied(run: LogRun) -> LogRun:
    """Add the steady rate, for all cards, in the unit of the run; say where it carries no interval."""
    seconds = run.scope == "seconds_per_step"
    factor = _factor(run)
    if factor is None or run.kind != "training":
        return run
    samples = [
        Sample(at, value, record.epoch)
        for at, record in enumerate(run.records)
        if (value := record.step_s if seconds else record.rate) is not None
    ]
    running = families()[run.family].running
    if running is not None:
        samples = _since(run, samples, *running, seconds)
    elif any(problem.code == RUNNING for problem in run.problems):
        steps, anew = _steps([run.records[one.index] for one in samples], run.facts.get("mean_from"))
        samples = intervals(samples, steps, seconds, anew)
    found = steady(samples, seconds)
    if found is None:
        return replace(run, problems=(*run.problems, *_none(run)))
    return replace(
        run, steady=_shown(found, factor, seconds), problems=(*run.problems, *_problems(found, run))
    )


def _factor(run: LogRun) -> float | None:
    """What a value times this, or this over seconds per step, is for all cards; None where unknown."""
    if run.scope == "seconds_per_step":
        return run.global_batch
    return scale_of(run).factor(run.scope)


def _since(run: LogRun, samples: Sequence[Sample], first: int, most: int, seconds: bool) -> list[Sample]:
    """Take running means apart: single steps up to ``first``, means of all since, then of the last ``most``.

    Of the last ones those are kept that share no step.
    """
    steps = [_step(run.records[one.index], at) for at, one in enumerate(samples)]
    single = [one for one, step in zip(samples, steps, strict=True) if step <= first]
    whole = [
        (one, step - first) for one, step in zip(samples, steps, strict=True) if 0 < step - first <= most
    ]
    made = [*single, *intervals([one for one, _ in whole], [step for _, step in whole], seconds)]
    end = first + most
    for one, step in zip(samples, steps, strict=True):
        if step >= end + most:
            made.append(one)
            end = step
    return made


def _steps(records: Sequence[Record], mean_from: str | None) -> tuple[list[int], set[int]]:
    """Of how many steps each record is the mean, and which of them share none with the one before.

    A mean begins with its epoch, or where the log went back; and anew with step ``mean_from`` of the epoch,
    steps being counted from 0, where its family names one.
    """
    begins = count(mean_from) or 0
    made: list[int] = []
    anew: set[int] = set()
    base, before = 0, None
    for at, record in enumerate(records):
        step = _step(record, at)
        if before is not None:
            gap = step - _step(before, at - 1)
            if record.epoch != before.epoch or gap <= 0:
                base = step - _first(records, at, gap) if gap > 0 else 0  # steps counted over all epochs
                anew.add(at)
            elif _step(before, at - 1) - base < begins <= step - base:
                anew.add(at)
        inside = step - base
        made.append(max(inside, 1) if not begins else inside + 1 - (begins if inside >= begins else 0))
        before = record
    return made, anew


def _first(records: Sequence[Record], at: int, gap: int) -> int:
    """Of how many steps the first record of an epoch is: no more than from it to the next."""
    if at + 1 < len(records) and records[at + 1].epoch == records[at].epoch:
        following = _step(records[at + 1], at + 1) - _step(records[at], at)
        if 0 < following < gap:
            return following
    return gap


def _step(record: Record, at: int) -> int:
    return at + 1 if record.step is None else record.step


def _shown(found: Steady, factor: float, seconds: bool) -> Mapping[str, Any]:
    def rate(value: float) -> float:
        return factor / value if seconds else factor * value

    return {
        "rate": rate(found.mean),
        "ci95": sorted(rate(end) for end in found.ci95) if found.ci95 else None,
        "records": found.records,
        "effective_records": round(found.effective, 1),
        "first": found.first,
        "last": found.last,
        "left_out": [{"record": at, "reason": reason} for at, reason in found.left_out],
    }


def _none(run: LogRun) -> list[Problem]:
    """Say why a run with records has no steady rate at all."""
    text = f"no steady rate: fewer than {LEAST} of the {len(run.records)} records are steady ones"
    return [Problem("no_interval", None, text)] if run.records else []


def _problems(found: Steady, run: LogRun) -> list[Problem]:
    made = []
    if found.ci95 is None:
        text = f"the steady records are worth {found.effective:.0f} independent ones; {EFFECTIVE} are needed"
        made.append(Problem("no_interval", None, text + " for an interval"))
    if found.drift:
        text = "the rate goes on changing in the steady part of the run; its mean is no constant"
        made.append(Problem("drift", run.records[found.first].line, text))
    return made
