"""From what a grammar found in a log to the runs in it: named, summed up, judged."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple, TypeVar

from runner.model import LogRun, Problem
from runner.names import shown
from runner.parsers._engine import Family, Found, Hit
from runner.parsers._environment import Surroundings, surroundings
from runner.parsers._not_used import not_used
from runner.parsers._segments import COUNTS, Segment, chosen_rank, segments
from runner.parsers._stalls import stalls
from runner.parsers._values import count, duration, fraction, name_says, precision, same_precision
from runner.rates import FEW, Scale, all_cards, figure, overview, parse_rule, select

CLOCK_STEP_S = 1.0  # a record this much earlier than the one above it: the clock was set back

_T = TypeVar("_T")


class Known(NamedTuple):
    """What the caller knows better than the log; it overrules log and name, with the source ``option``."""

    family: str | None = None
    rule: str | None = None
    cards: int | None = None
    hosts: int | None = None
    batch_size: int | None = None
    precision: str | None = None


def runs(found: Found, log: str, known: Known, around: Sequence[Hit] = ()) -> list[LogRun]:
    """Make the runs that one family's grammar found in a log, in order; empty where it proved nothing.

    ``around`` is what the log says of the machine, see ``_environment``.
    """
    if not found.proved:
        return []
    ranks = Counter(hit.line.rank for hit in found.hits if hit.record is not None)
    made: list[LogRun] = []
    parts = segments(found.hits, chosen_rank(found.hits))
    for segment, lines in zip(parts, _shared_out(around, parts), strict=True):
        run = _run(found.family, segment, log, known, surroundings(lines, found.family.framework))
        problems = (*run.problems, *_mixed_ranks(ranks, run), *_duplicate(made, run))
        made.append(found.family.finish(replace(run, problems=problems)))
    return made


class _Settings(NamedTuple):
    """What was run on what; ``sources`` says per setting where it is known from."""

    cards: int | None
    hosts: int | None
    batch_size: int | None
    global_batch: int | None
    precision: str | None
    sources: Mapping[str, str]


def _shared_out(around: Sequence[Hit], parts: Sequence[Segment]) -> list[Sequence[Hit]]:
    """Give each run the lines that stand in or before it, the last one what follows as well.

    Logs of one file per process count their lines anew: then all lines belong to every run.
    """
    ends = [part.last_line for part in parts]
    numbers = [hit.line.number for hit in around]
    if ends != sorted(ends) or numbers != sorted(numbers):
        return [around] * len(parts)
    cuts = [0, *(bisect_right(numbers, end) for end in ends[:-1]), len(numbers)]
    return [around[first:last] for first, last in pairwise(cuts)]


def _run(family: Family, segment: Segment, log: str, known: Known, around: Surroundings) -> LogRun:
    stated = _stated(segment.parameters)
    said = {**stated, **_by_nccl(stated, around)}
    named = name_says(log)
    settings = _settings(segment, said, named, known)
    threads = count(segment.facts.get("threads") or named.get("threads"))
    scale = Scale(settings.cards, settings.hosts, threads, settings.global_batch)
    values = all_cards(segment.records, family.scope, scale)
    summary = _summary(segment, family, scale)
    rule = known.rule or family.rule
    text = {**around.known, **segment.parameters}.get
    return LogRun(
        log=log,
        sha256=None,
        kind=family.kind,
        family=family.name,
        framework=text("framework", family.framework),
        framework_version=text("framework_version"),
        model=text("model") or family.model,
        gpu=text("gpu"),
        driver=text("driver"),
        nccl=text("nccl"),
        transport=around.nccl.transport,
        **settings._asdict(),
        unit=text("unit", family.unit),
        scope=family.scope,
        records=tuple(segment.records),
        rate=figure(parse_rule(rule), values, summary),
        rule=rule,
        rates=overview(values, summary),
        time_to_train_s=duration(segment.outcomes.get("time_to_train_s")),
        time_to_target_s=duration(segment.outcomes.get("time_to_target_s")),
        accuracy=fraction(segment.outcomes.get("accuracy")),
        complete=segment.complete,
        lines_not_used={**segment.not_used, **not_used(rule, segment.records, family.scope, values)},
        problems=(
            *_lines_at_fault(segment),
            *_name_disagrees(segment.parameters, said, named),
            *_log_disagrees(stated, around, named),
            *around.nccl.problems,
            *_truncated(segment),
            *(_scale_unknown(family, segment, values) or _few_records(rule, values, summary)),
            *stalls(segment.records, family.scope, around.saves),
        ),
        facts={**around.facts, **segment.facts, **({"threads": threads} if threads else {})},
    )


def _stated(parameters: Mapping[str, str]) -> dict[str, int | None]:
    """How many took part as the family's own lines say it; some say only how many cards each host has."""
    said = {key: count(parameters.get(key)) for key in COUNTS}
    per_host = count(parameters.get("cards_per_host"))
    if said["cards"] is None and said["hosts"] and per_host:
        said["cards"] = said["hosts"] * per_host
    return said


def _by_nccl(stated: Mapping[str, int | None], around: Surroundings) -> Mapping[str, int | None]:
    """How many took part as NCCL says it, where the family's own lines do not."""
    counted = {"cards": around.nccl.cards, "hosts": around.nccl.hosts}
    return {key: number for key, number in counted.items() if stated[key] is None}


def _settings(
    segment: Segment, said: Mapping[str, int | None], named: Mapping[str, str], known: Known
) -> _Settings:
    cards, cards_from = _first(known.cards, said["cards"], count(named.get("cards")))
    hosts, hosts_from = _first(known.hosts, said["hosts"], count(named.get("hosts")))
    batch, batch_from = _first(known.batch_size, said["batch_size"], count(named.get("batch_size")))
    kind, kind_from = _first(known.precision, _precision(segment.parameters), named.get("precision"))
    sources = {"cards": cards_from, "hosts": hosts_from, "batch_size": batch_from, "precision": kind_from}
    whole = cards * batch if cards and batch else None
    if not known.cards and not known.batch_size:
        whole = said["global_batch"] or whole  # with accumulated gradients it is more than cards x batch
    return _Settings(cards, hosts, batch, whole, kind, {key: one for key, one in sources.items() if one})


def _first(option: _T | None, stated: _T | None, named: _T | None) -> tuple[_T | None, str | None]:
    for value, source in ((option, "option"), (stated, "log"), (named, "name")):
        if value is not None:
            return value, source
    return None, None


def _precision(parameters: Mapping[str, str]) -> str | None:
    if "precision" in parameters:
        return precision(parameters["precision"])
    return {"True": "amp", "False": "fp32"}.get(parameters.get("amp", ""))


def _summary(segment: Segment, family: Family, scale: Scale) -> dict[str, float]:
    """Give the log's own figures for all cards, the one that rule ``summary`` means first."""
    factor = scale.factor(family.summary_scope)
    if factor is None:
        return {}
    figures = {key: value * factor for key, value in segment.summary.items()}
    first = {family.summary: figures[family.summary]} if family.summary in figures else {}
    return {**first, **figures}


# --- problems ------------------------------------------------------------------------------


def _lines_at_fault(segment: Segment) -> list[Problem]:
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


def _name_disagrees(
    parameters: Mapping[str, str], said: Mapping[str, int | None], named: Mapping[str, str]
) -> list[Problem]:
    pairs: dict[str, tuple[object, object]] = {
        key: (said[key], count(named.get(key))) for key in ("cards", "hosts", "batch_size")
    }
    body, name = _precision(parameters), named.get("precision")
    if not same_precision(body, name):
        pairs["precision"] = (body, name)
    return [
        Problem(
            "name_disagrees", None, f"{key}: the log says {in_log}, its name says {in_name}; the log holds"
        )
        for key, (in_log, in_name) in pairs.items()
        if in_log is not None and in_name is not None and in_log != in_name
    ]


def _log_disagrees(
    stated: Mapping[str, int | None], around: Surroundings, named: Mapping[str, str]
) -> list[Problem]:
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


def _truncated(segment: Segment) -> list[Problem]:
    if segment.complete:
        return []
    return [Problem("truncated", segment.last_line, "no end of the training follows; the log may be cut off")]


def _scale_unknown(family: Family, segment: Segment, values: Sequence[float]) -> list[Problem]:
    if values or not any(one.rate is not None or one.step_s for one in segment.records):
        return []
    missing = "batch size and cards" if family.scope == "seconds_per_step" else "number of cards or hosts"
    return [
        Problem(
            "scale_unknown", None, f"{family.scope} figures need the {missing}; neither log nor name says it"
        )
    ]


def _few_records(rule_text: str, values: Sequence[float], summary: Mapping[str, float]) -> list[Problem]:
    rule = parse_rule(rule_text)
    if rule.kind != "summary":
        used = len(select(rule, values))
        text = f"{rule_text} works on {used} of {len(values)} records; fewer than {FEW} make no firm figure"
        return [Problem("few_records", None, text)] if used < FEW else []
    if figure(rule, values, summary) is not None:
        return []
    text = f"{rule_text}: no such figure; there is {', '.join(summary) or 'none'}"
    return [Problem("few_records", None, text)]


def _mixed_ranks(ranks: Mapping[int | None, int], run: LogRun) -> list[Problem]:
    if len(ranks) < 2 or not run.records:
        return []
    listed = sorted(ranks.items(), key=lambda entry: (entry[0] is None, entry[0] or 0))
    counts = ", ".join(
        f"{'no rank' if rank is None else rank}: {number_of}" for rank, number_of in listed[:40]
    )
    text = f"records of several ranks ({counts}); those of rank {run.records[0].rank} count"
    return [Problem("mixed_ranks", run.records[0].line, text)]


def _duplicate(made: Sequence[LogRun], run: LogRun) -> list[Problem]:
    def setting(one: LogRun) -> tuple[object, ...]:
        return one.cards, one.batch_size, one.precision

    if not any(setting(one) == setting(run) for one in made):
        return []
    line = run.records[0].line if run.records else None
    return [Problem("duplicate_run", line, "the log holds an earlier run with the same settings")]
