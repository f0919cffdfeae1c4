"""What a reader of a run must know beside its figures: the problems that every family can have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from runner.model import LogRun, Problem
from runner.names import shown
from runner.parsers._engine import Family
from runner.parsers._environment import Surroundings
from runner.parsers._segments import Segment
from runner.parsers._values import count, same_precision
from runner.rates import figure, parse_rule, select, too_few

CLOCK_STEP_S = 1.0  # a record this much earlier than the one above it: the clock was set back


def lines_at_fault(segment: Segment) -> list[Problem]:
    """Name lines without a figure of use: losses, rates, times."""
    found = []
    if segment.nan_losses:
        text = f"losses that are no finite number: {len(segment.nan_losses)}; the rates beside them count"
        found.append(Problem("nan_loss", segment.nan_losses[0].line.number, text))
    if segment.bad:
        line = segment.bad[0].line
        first = shown(line.text.strip())
        text = f"lines that should hold a figure and do not: {len(segment.bad)}; the first: {first}"
        found.append(Problem("bad_number", line.number, text))
    timed = [record for record in segment.records if record.time is not None]
    for earlier, later in pairwise(timed):
        if (later.time or 0) < (earlier.time or 0) - CLOCK_STEP_S:
            text = f"the time of this record is before that of line {earlier.line}"
            return [*found, Problem("clock_jumped", later.line, text)]
    return found


def name_disagrees(
    segment: Segment, said: Mapping[str, int | None], named: Mapping[str, str]
) -> list[Problem]:
    """Hold what the log's name says against the log."""
    pairs: dict[str, tuple[object, object]] = {
        key: (said[key], count(named.get(key))) for key in ("cards", "hosts", "batch_size")
    }
    body, name = segment.precision, named.get("precision")
    if not same_precision(body, name):
        pairs["precision"] = (body, name)
    return [
        Problem(
            "name_disagrees", None, f"{key}: the log says {in_log}, its name says {in_name}; the log holds"
        )
        for key, (in_log, in_name) in pairs.items()
        if in_log is not None and in_name is not None and in_log != in_name
    ]


def log_disagrees(
    stated: Mapping[str, int | None], around: Surroundings, named: Mapping[str, str]
) -> list[Problem]:
    """Hold how many took part by the family's lines, or by the name, against what NCCL says of it."""
    nccl = around.nccl
    found = [
        f"{key}: the log says {stated[key]}, NCCL in it {number}; the former holds"
        for key, number in (("cards", nccl.cards), ("hosts", nccl.hosts))
        if number is not None and stated[key] not in (None, number)
    ]
    hosts = stated["hosts"] or count(named.get("hosts"))
    if hosts is not None and nccl.hosts is None and nccl.least_hosts > hosts:
        found.append(f"hosts: {hosts} by the log or its name, NCCL in it speaks on {nccl.least_hosts}")
    return [Problem("log_disagrees", None, text) for text in found]


def truncated(segment: Segment) -> list[Problem]:
    """Say where the end that only a finished training writes is missing."""
    if segment.complete:
        return []
    return [Problem("truncated", segment.last_line, "no end of the training follows; the log may be cut off")]


def scale_unknown(family: Family, segment: Segment, values: Sequence[float]) -> list[Problem]:
    """Say what is missing where no rate for all cards can be told; ``values`` are the rates that can."""
    if values or not any(one.rate is not None or one.step_s for one in segment.records):
        return []
    missing = "batch size and cards" if family.scope == "seconds_per_step" else "number of cards or hosts"
    return [
        Problem(
            "scale_unknown", None, f"{family.scope} figures need the {missing}; neither log nor name says it"
        )
    ]


def few_records(rule_text: str, values: Sequence[float], summary: Mapping[str, float]) -> list[Problem]:
    """Say where a rule has too little to work on, or not the figure that it names."""
    rule = parse_rule(rule_text)
    if rule.kind != "summary":
        used = len(select(rule, values))
        text = f"{rule_text} works on {used} of {len(values)} records: too few for a firm figure"
        return [Problem("few_records", None, text)] if too_few(rule, values) else []
    if figure(rule, values, summary) is not None:
        return []
    text = f"{rule_text}: no such figure; there is {', '.join(summary) or 'none'}"
    return [Problem("few_records", None, text)]


def without(run: LogRun, *codes: str) -> tuple[Problem, ...]:
    """Give the problems of a run but for those of some codes."""
    return tuple(problem for problem in run.problems if problem.code not in codes)


def running_average(run: LogRun, figure: str) -> LogRun:
    """Say that the records of a run are means since their epoch began; ``figure`` is what they call it.

    Whoever works out the steady rate takes such records apart: see ``runner.steadiness``.
    """
    if not run.records:
        return run
    text = f"{figure} is the mean since the beginning of the epoch: records next to each other"
    text = f"{text} are nearly the same"
    return replace(run, problems=(*run.problems, Problem("running_average", run.records[0].line, text)))


def mixed_ranks(ranks: Mapping[int | None, int], run: LogRun) -> list[Problem]:
    """Say where several ranks wrote records; ``ranks`` counts them."""
    if len(ranks) < 2 or not run.records:
        return []
    listed = sorted(ranks.items(), key=lambda entry: (entry[0] is None, entry[0] or 0))
    counts = ", ".join(
        f"{'no rank' if rank is None else rank}: {number_of}" for rank, number_of in listed[:40]
    )
    text = f"records of several ranks ({counts}); those of rank {run.records[0].rank} count"
    return [Problem("mixed_ranks", run.records[0].line, text)]


def duplicate(made: Sequence[LogRun], run: LogRun) -> list[Problem]:
    """Say where an earlier run of the log had the same settings."""

    def setting(one: LogRun) -> tuple[object, ...]:
        return one.cards, one.batch_size, one.precision

    if not any(setting(one) == setting(run) for one in made):
        return []
    line = run.records[0].line if run.records else None
    return [Problem("duplicate_run", line, "the log holds an earlier run with the same settings")]


def hosts_missing(family: Family, segment: Segment, run: LogRun) -> LogRun:
    """Take back the rate where each host sums up its own work and not all of them wrote the log.

    Whoever says how many there are gets so many times the one that did, with the problem beside it.
    """
    if family.summary_scope != "per_host" or run.hosts in (None, 1):
        return run
    if len(segment.of_hosts) == run.hosts and parse_rule(run.rule).kind == "summary":
        return run
    asked = run.sources.get("hosts") == "option"
    times = f"{run.hosts} times this one's"
    told = f"the rate is an estimate, {times}" if asked else f"no rate of all; rates holds {times}, estimates"
    text = f"one of {run.hosts} workers: {told}"
    problems = (*run.problems, Problem("ranks_missing", None, text))
    return replace(run, rate=run.rate if asked else None, problems=problems)
