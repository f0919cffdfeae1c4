"""From what a grammar found in a log to the runs in it: named, summed up, judged."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import fsum
from typing import Any, NamedTuple, TypeVar

from runner.model import LogRun
from runner.parsers._engine import Family, Found, Hit
from runner.parsers._environment import Surroundings, surroundings
from runner.parsers._launch import hosts_of
from runner.parsers._not_used import not_used
from runner.parsers._problems import (
    duplicate,
    few_records,
    hosts_missing,
    lines_at_fault,
    log_disagrees,
    mixed_ranks,
    name_disagrees,
    scale_unknown,
    truncated,
)
from runner.parsers._segments import COUNTS, Segment, chosen_rank, segments, stands_alone
from runner.parsers._stalls import stalls
from runner.parsers._values import count, duration, fraction, name_says
from runner.rates import Scale, all_cards, figure, overview, parse_rule

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
    rank = chosen_rank(found.hits)
    if rank is not None and stands_alone(found.hits, rank):
        del ranks[None]
    made: list[LogRun] = []
    parts = _with_other_hosts(found, segments(found.hits, rank))
    for segment, lines in zip(parts, _shared_out(around, parts), strict=True):
        run = _run(found.family, segment, log, known, surroundings(lines, found.family.framework))
        problems = (*run.problems, *mixed_ranks(ranks, run), *duplicate(made, run))
        finished = found.family.finish(replace(run, problems=problems))
        made.append(hosts_missing(found.family, segment, finished))
    return made


class _Settings(NamedTuple):
    """What was run on what; ``sources`` says per setting where it is known from."""

    cards: int | None
    hosts: int | None
    batch_size: int | None
    global_batch: int | None
    precision: str | None
    sources: Mapping[str, str]


def _with_other_hosts(found: Found, parts: Sequence[Segment]) -> Sequence[Segment]:
    """Give each run what every host summed up, where each host sums up what it did itself."""
    if found.family.summary_scope != "per_host":
        return parts
    ranks = sorted(
        {hit.line.rank for hit in found.hits if hit.kind == "summary" and hit.line.rank is not None}
    )
    of_ranks = [segments(found.hits, rank) for rank in ranks]
    for number, part in enumerate(parts):
        if ranks and all(len(of_rank) == len(parts) for of_rank in of_ranks):
            part.of_hosts = [of_rank[number].summary for of_rank in of_ranks]
    return parts


def _shared_out(around: Sequence[Hit], parts: Sequence[Segment]) -> list[Sequence[Hit]]:
    """Give each run the lines that stand in or before it, the last one what follows as well.

    Logs of one file per process count their lines anew: then all lines belong to every run.
    """
    if not parts:
        return []
    ends = [part.last_line for part in parts]
    numbers = [hit.line.number for hit in around]
    if ends != sorted(ends) or numbers != sorted(numbers):
        return [around] * len(parts)
    cuts = [0, *(bisect_right(numbers, end) for end in ends[:-1]), len(numbers)]
    return [around[first:last] for first, last in pairwise(cuts)]


def _run(family: Family, segment: Segment, log: str, known: Known, around: Surroundings) -> LogRun:
    stated = _stated(segment)
    said = {**stated, **_by_nccl(stated, around)}
    named = name_says(log)
    settings = _settings(segment, said, named, known)
    threads = count(segment.facts.get("threads") or named.get("threads"))
    scale = Scale(settings.cards, settings.hosts, threads, settings.global_batch)
    values = all_cards(segment.records, family.scope, scale)
    summary = _summary(segment, family, scale)
    rule = known.rule or family.rule
    return LogRun(
        log=log,
        sha256=None,
        kind=family.kind,
        family=family.name,
        **_words(family, segment, around),
        transport=around.nccl.transport,
        **settings._asdict(),
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
            *lines_at_fault(segment),
            *name_disagrees(segment, said, named),
            *log_disagrees(stated, around, named),
            *around.problems,
            *truncated(segment),
            *(scale_unknown(family, segment, values) or few_records(rule, values, summary)),
            *stalls(segment.records, family.scope, around.saves),
        ),
        facts=_facts(segment, around, threads),
    )


def _words(family: Family, segment: Segment, around: Surroundings) -> dict[str, Any]:
    """What trained what on what, in the words of the log; where it is silent, in those of the family."""
    text = {**around.known, **segment.parameters}.get
    return {
        "framework": text("framework", family.framework),
        "model": text("model") or family.model,
        "unit": text("unit", family.unit),
        **{key: text(key) for key in ("framework_version", "gpu", "driver", "nccl")},
    }


def _facts(segment: Segment, around: Surroundings, threads: int | None) -> dict[str, Any]:
    return {
        **around.facts,
        **segment.facts,
        **({"threads": threads} if threads else {}),
        **({"summed_hosts": len(segment.of_hosts)} if segment.of_hosts else {}),
    }


def _stated(segment: Segment) -> dict[str, int | None]:
    """How many took part as the family's own lines say it: some name hosts, or say how many cards one has."""
    said = {key: count(segment.parameters.get(key)) for key in COUNTS}
    said["hosts"] = said["hosts"] or len(segment.hosts) or None
    said["hosts"] = said["hosts"] or hosts_of(segment.parameters, said["cards"])
    per_host = count(segment.parameters.get("cards_per_host"))
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
    kind, kind_from = _first(known.precision, segment.precision, named.get("precision"))
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


def _summary(segment: Segment, family: Family, scale: Scale) -> dict[str, float]:
    """Give the log's own figures for all cards, the one that rule ``summary`` means first."""
    of_hosts, factor = segment.of_hosts, scale.factor(family.summary_scope)
    if factor is None:
        return {}
    figures = {key: value * factor for key, value in segment.summary.items()}
    if len(of_hosts) == scale.hosts:  # all of them wrote: no need to take one for the others
        figures = {key: fsum(one[key] for one in of_hosts if key in one) for key in figures}
    first = {family.summary: figures[family.summary]} if family.summary in figures else {}
    return {**first, **figures}
