"""What the ranks of the job between hosts wrote, read back; what they wrote may be anything."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from runner.diagnosis import loose

TELLING = re.compile(r"Error\b|\berror:|^ssh:|not found|No such file")
MARK = "runkit-doctor "
Way = tuple[str, str]  # from one host to another


@dataclass(frozen=True, slots=True)
class Meetings:
    """One job of one rank per host, or the best of several; hosts by name, the launch host first.

    ``here``: whose rank began; ``through``: whose came to the end; ``failed``: whose Python lacks something,
    with what it said. ``met``: per pair whether it was; pairs of which nobody said anything are not in it.
    ``rates`` in bytes per second by the way that the data went, ``latencies`` in seconds, ``wrong``: ways on
    which other bytes came than were sent. ``sums``: per host seconds for a sum of all ranks, and whether it
    was right. ``said``: the launcher's complaint. ``lost``: whose daemon the launcher lost, who could not be
    looked at behind the job, or whose rank stood still, with what shows it; "" where it is the complaint.
    ``broken``: whose daemon ended first of those that ended with an error.
    """

    hosts: tuple[str, ...] = ()
    here: frozenset[str] = frozenset()
    through: frozenset[str] = frozenset()
    met: Mapping[frozenset[str], bool] = field(default_factory=dict)
    rates: Mapping[Way, float] = field(default_factory=dict)
    latencies: Mapping[frozenset[str], float] = field(default_factory=dict)
    wrong: frozenset[Way] = frozenset()
    sums: Mapping[str, tuple[float, bool]] = field(default_factory=dict)
    said: str = ""
    why: str = ""
    lost: Mapping[str, str] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
    broken: str = ""
    slot_s: float = 0.0


def read(answer: Mapping[str, Any]) -> Meetings:
    """What one try of the job gave."""
    by_address = {a: n for a, n in loose.mapping(answer.get("hosts")).items() if isinstance(n, str)}
    lines = list(_lines(loose.text(answer, "out")))
    names: dict[float, str] = {}
    for line in lines:
        rank, name = loose.number(line, "rank"), by_address.get(loose.text(line, "host"))
        if line.get("event") == "here" and rank is not None and name is not None:
            names[rank] = name
    made = _Making(names)
    for line in lines:
        made.take(line)
    gone = dict.fromkeys(loose.mapping(answer.get("lost")), "it could not be looked at behind the job")
    stuck = made.stuck if len(names) == len(by_address) else {}  # else what is missing tells more
    return Meetings(
        hosts=tuple(by_address.values()),
        here=frozenset(names.values()),
        through=frozenset(made.through),
        met=made.met,
        rates=made.rates,
        latencies=made.latencies,
        wrong=frozenset(made.wrong),
        sums=made.sums,
        said=_complaint(loose.text(answer, "err")),
        why=loose.text(answer, "why"),
        lost={**dict.fromkeys(_lost(loose.text(answer, "err"), by_address), ""), **gone, **stuck},
        failed=made.failed,
        broken=_broken(loose.text(answer, "err"), by_address),
        slot_s=loose.number(answer, "slot_s") or 0.0,
    )


def best(tries: Sequence[Meetings]) -> Meetings:
    """Of several tries the best figures, and of the last all else: other work on a host only slows down."""
    last = tries[-1]
    rates, latencies = dict(last.rates), dict(last.latencies)
    for each in tries[:-1]:
        for way, rate in each.rates.items():
            rates[way] = max(rate, rates.get(way, rate))
        for pair, seconds in each.latencies.items():
            latencies[pair] = min(seconds, latencies.get(pair, seconds))
    return replace(last, rates=rates, latencies=latencies)


def figures(found: Meetings) -> dict[str, Any]:
    """For people and machines: least, median and most of the pairs, and the sum of all hosts."""
    return {
        "hosts": list(found.hosts),
        "latency_s": _spread(list(found.latencies.values())),
        "bytes_per_s": _spread(list(found.rates.values())),
        "all_reduce_s": max((seconds for seconds, _ in found.sums.values()), default=None),
    }


def _spread(values: Sequence[float]) -> list[float] | None:
    return [min(values), median(values), max(values)] if values else None


class _Making:
    def __init__(self, names: Mapping[float, str]) -> None:
        self.names = names
        self.met: dict[frozenset[str], bool] = {}
        self.rates: dict[Way, float] = {}
        self.latencies: dict[frozenset[str], float] = {}
        self.wrong: set[Way] = set()
        self.sums: dict[str, tuple[float, bool]] = {}
        self.through: set[str] = set()
        self.failed: dict[str, str] = {}
        self.stuck: dict[str, str] = {}

    def take(self, line: Mapping[str, Any]) -> None:
        own = self.names.get(loose.number(line, "rank") or 0.0)
        peer = self.names.get(-1.0 if (rank := loose.number(line, "peer")) is None else rank)
        if own is None:
            return
        if line.get("event") == "pair" and peer is not None and peer != own:
            self._pair(line, own, peer)
        elif line.get("event") == "all" and (seconds := loose.number(line, "seconds")) is not None:
            self.sums[own] = (seconds, line.get("right") is True)
        elif line.get("event") == "end":
            self.through.add(own)
        elif line.get("event") == "fails":
            self.failed[own] = loose.text(line, "why")
        elif line.get("event") == "stuck":
            state = loose.text(line, "state")
            self.stuck[own] = f"its rank stood still before any had met (process state {state})"

    def _pair(self, line: Mapping[str, Any], own: str, peer: str) -> None:
        pair = frozenset((own, peer))
        self.met[pair] = self.met.get(pair, False) or line.get("met") is True
        if rate := loose.number(line, "bytes_s"):
            self.rates[own, peer] = rate
        if latency := loose.number(line, "latency_s"):
            self.latencies[pair] = latency
        if line.get("right") is False:
            self.wrong.add((peer, own))


def _lines(out: str) -> Iterator[Mapping[str, Any]]:
    for line in out.splitlines():
        text = line.partition(MARK)[2]
        if not text:
            continue
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            yield found


def _complaint(err: str) -> str:
    """The line of a launcher's or a rank's complaint that says most: an error's name, else the first.

    Open MPI explains at length between two lines of dashes.
    """
    lines = [line.strip() for line in err.splitlines() if line.strip(" -\t=*")]
    telling = [line for line in lines if TELLING.search(line)]
    return telling[-1] if telling else (lines or [""])[0]


def _broken(err: str, by_address: Mapping[str, str]) -> str:
    """As job.py has the hosts say it; behind the first, the launcher ends the others itself."""
    found = re.search(r"^daemon on (\S{1,255}) ended with status \d", err, re.MULTILINE)
    return by_address.get(found[1], "") if found else ""


def _lost(err: str, by_address: Mapping[str, str]) -> Iterator[str]:
    """As in ``Remote daemon: [[41216,0],1] on node 10.0.0.12``."""
    for address in re.findall(r"Remote daemon:.{0,60} on node (\S{1,255})", err):
        if address in by_address:
            yield by_address[address]
