"""What an MPI job of one rank per host shows: hosts that do not take part, answer wrong, or are slow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from runner.diagnosis import loose, meetings
from runner.diagnosis.meetings import Meetings
from runner.diagnosis.model import Finding, HostView, Rule

PROBE = "job"  # of the first host; made by runner.looking
# A link that fell back to the next lower speed, or lost half of its lanes, has half of the rate; hosts of one
# kind on one switch are within a tenth of each other, on busy machines the best of some messages in a third.
SLOW_RATE = 0.6
# Hosts without cards, such as those of a rehearsal cluster, may share processors: there the best of some
# messages was seen to differ by a factor of three.
SLOW_RATE_SHARED = 0.2
# One more switch on the way adds a microsecond, a wrong route or a port that sleeps hundreds.
SLOW_LATENCY, SLOW_LATENCY_S = 3.0, 0.0002

RULES = (
    Rule(
        "mpi_job_fails",
        "blocking",
        "An MPI job of one rank per host does not start",
        "the launcher's daemon or the ranks' Python does not start there, or numpy and mpi4py are missing",
        "mend what the evidence says; run provision, which installs what ranks need",
    ),
    Rule(
        "mpi_ranks_apart",
        "blocking",
        "Ranks start on all hosts and do not find each other",
        "they tell each other addresses at which nobody answers: of several interfaces or addresses of a"
        " host, or behind a firewall",
        "state cluster_cidr, which only the interface of the ranks is in, and let the hosts reach"
        " each other on all ports above 1023; see 'ip -brief address' for a host"
        " that has more addresses than the others",
    ),
    Rule(
        "mpi_no_answer",
        "blocking",
        "Ranks on the host and on others do not reach each other",
        "the host hangs or has lost its network, or a firewall lets MPI's connections through in part",
        "look at the host's network and kernel log; let the hosts reach each other on all ports",
    ),
    Rule(
        "mpi_wrong_data",
        "blocking",
        "What ranks of the host send or receive is not what was sent",
        "memory, network card or its offloading is defective",
        "take the host out; look for machine check errors in its kernel log, and test its memory and card",
    ),
    Rule(
        "mpi_sum_fails",
        "blocking",
        "Ranks of all hosts together do not come to the right sum",
        "pairs work one by one, and under load of all the network drops packets or a host stalls",
        "look for drops and errors with 'ip -s link' on the hosts and on the switch's ports",
    ),
    Rule(
        "mpi_slow_rate",
        "warning",
        "Data to or from the host is slower than between the others",
        "its link has fallen back to a lower speed or lost lanes, its cable or port is bad, or something else"
        " uses the host",
        "see the link's speed (ethtool, ibstat) and its errors ('ip -s link'); change cable and port; look"
        " for other work with top",
    ),
    Rule(
        "mpi_slow_latency",
        "warning",
        "Messages to and from the host take longer than between the others",
        "they go another way (a router, a tunnel), the port sleeps or drops packets, or the host's processor"
        " sleeps or is busy",
        "compare 'ip route get ADDRESS' and 'ping' with another host; look for other work with top",
    ),
    Rule(
        "mpi_job_left_out",
        "info",
        "The host took no part in the job between hosts",
        "something else is found that no such job survives or that it would disturb",
        "mend that first, then look again",
    ),
)


def check(hosts: Sequence[HostView]) -> Iterator[Finding]:
    """Yield what the job shows."""
    for host in hosts[:1]:
        said = loose.mapping(host.data(PROBE))
        names = {each.name for each in hosts}
        for name, why in loose.mapping(said.get("left_out")).items():
            if name in names and isinstance(why, str):
                yield Finding("mpi_job_left_out", name, why, "no job between this host and others")
        if tries := [meetings.read(each) for each in loose.rows(said.get("tries"))]:
            slow = SLOW_RATE if host.stated.has_gpus else SLOW_RATE_SHARED
            for finding in _job(meetings.best(tries), slow):
                if finding.host in names:
                    yield finding


def figures(hosts: Sequence[HostView]) -> dict[str, Any] | None:
    """What the job measured, None where there was none; see ``meetings.figures``."""
    said = next((loose.mapping(host.data(PROBE)) for host in hosts if PROBE in host.probes), {})
    tries = [meetings.read(each) for each in loose.rows(said.get("tries"))]
    return meetings.figures(meetings.best(tries)) if tries else None


def is_silent(findings: Sequence[Finding]) -> bool:
    """Whether the job ended without a word that names a host."""
    return any(each.code in ("mpi_job_fails", "mpi_ranks_apart") for each in findings)


def is_doubtful(findings: Sequence[Finding], last: Mapping[str, Any]) -> bool:
    """Whether one of them may come of a moment: other work on a host, a packet that was lost.

    ``last`` is the try that they are of. Where a host is lost, or no rank came through, they are certain.
    """
    codes, job = {each.code for each in findings}, meetings.read(last)
    slow = codes & {"mpi_slow_rate", "mpi_slow_latency"}
    return bool(slow or (codes & {"mpi_no_answer", "mpi_sum_fails"} and job.through and not job.lost))


def _job(job: Meetings, slow: float) -> Iterator[Finding]:
    missing = [name for name in job.hosts if name not in job.here]
    if job.failed:
        for name, why in job.failed.items():
            yield Finding("mpi_job_fails", name, why or "ImportError", "its rank cannot load what it needs")
        return
    if missing or not (job.met or job.through):
        yield from _lost(job) if job.lost else _not_started(job, missing)
        return
    yield from _silent(job)
    yield from _wrong(job)
    yield from _sums(job)
    yield from _slow_rates(job, slow)
    yield from _slow_latencies(job)


def _lost(job: Meetings) -> Iterator[Finding]:
    for name in job.hosts:
        if name in job.lost:
            shown = job.lost[name] or job.said
            yield Finding("mpi_no_answer", name, shown, "it was lost while the job began")


def _not_started(job: Meetings, missing: Sequence[str]) -> Iterator[Finding]:
    shown = job.said or {"timeout": "no rank came further in time"}.get(job.why, job.why) or "it said nothing"
    if missing and job.here:
        for name in missing:
            yield Finding("mpi_job_fails", name, shown, "no rank started there")
    elif missing and job.broken:
        yield Finding("mpi_job_fails", job.broken, shown, "the launcher's daemon does not run there")
    elif job.hosts:
        code, detail = (
            ("mpi_job_fails", "no rank started on any host")
            if missing
            else ("mpi_ranks_apart", "it started them, and they did not find each other")
        )
        yield Finding(code, job.hosts[0], shown, detail)


# --- who does not answer ---------------------------------------------------------------------


def blamed(pairs: Collection[frozenset[str]], suspects: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """The fewest hosts that explain all these pairs: host and the others of its pairs.

    Of hosts with equally many, the first of ``suspects``.
    """
    left = set(pairs)
    while left:
        counts = Counter(name for pair in left for name in pair)
        most = max(counts.values())
        host = next(name for name in (*suspects, *sorted(counts)) if counts[name] == most)
        yield host, sorted(name for pair in left if host in pair for name in pair - {host})
        left = {pair for pair in left if host not in pair}


def _suspects(job: Meetings) -> list[str]:
    """Those that did not come to the end first; the launch host last, for what it says has come here."""
    backwards = [*job.hosts][::-1]
    return sorted(backwards, key=lambda name: name in job.through)


def _silent(job: Meetings) -> Iterator[Finding]:
    unmet = {pair for pair, met in job.met.items() if not met}
    for host, others in blamed(unmet, _suspects(job)):
        shown = f"{host} and {', '.join(others)}: no message within {job.slot_s:g} s"
        yield Finding("mpi_no_answer", host, shown, f"{_of(others, job)} got no answer")


def _of(others: Sequence[str], job: Meetings) -> str:
    return f"{len(others)} of {len(job.hosts) - 1} others"


def _wrong(job: Meetings) -> Iterator[Finding]:
    for host, others in blamed({frozenset(way) for way in job.wrong}, _suspects(job)):
        ways = ", ".join(f"{one} to {two}" for one, two in sorted(job.wrong) if host in (one, two))
        yield Finding("mpi_wrong_data", host, f"other bytes came: {ways}", f"with {_of(others, job)}")


def _sums(job: Meetings) -> Iterator[Finding]:
    if not all(job.met.values()):  # then it cannot be right, and the reason is told
        return
    silent = [name for name in job.hosts if name not in job.through]
    if silent and job.through:  # those that are there say so, be the sum right or not
        for name in silent:
            shown = f"{name} met all others and did not come to the end"
            yield Finding("mpi_no_answer", name, shown, "it fell silent before the sum of all")
        return
    for name in job.hosts:
        if name not in job.sums:
            yield Finding(
                "mpi_sum_fails", name, job.said or f"no sum on {name} in time", "the sum did not end"
            )
        elif not job.sums[name][1]:
            yield Finding("mpi_sum_fails", name, f"all-reduce on {name}: wrong sum", "the sum was wrong")


# --- who is slow -----------------------------------------------------------------------------


def _slow_rates(job: Meetings, slow: float) -> Iterator[Finding]:
    for host in job.hosts:
        others = [rate for way, rate in job.rates.items() if host not in way]
        usual = median(others) if others else 0.0
        for word, end in (("to", 1), ("from", 0)):
            own = [rate for way, rate in job.rates.items() if way[end] == host]
            if own and _most(rate < slow * usual for rate in own):
                rates = ", ".join(f"{rate / 1e6:.0f}" for rate in sorted(own)[:8])
                shown = f"{word} {host}: {rates} MB/s; between others {usual / 1e6:.0f} MB/s"
                detail = f"data {word} it has {median(own) / usual:.0%} of the rate between others"
                yield Finding("mpi_slow_rate", host, shown, detail)
                break


def _slow_latencies(job: Meetings) -> Iterator[Finding]:
    for host in job.hosts:
        others = [seconds for pair, seconds in job.latencies.items() if host not in pair]
        usual = median(others) if others else 1e9
        own = [seconds for pair, seconds in job.latencies.items() if host in pair]
        least = max(SLOW_LATENCY * usual, usual + SLOW_LATENCY_S)
        if own and _most(seconds > least for seconds in own):
            shown = f"{host}: {', '.join(f'{each * 1e6:.0f}' for each in sorted(own)[:8])} us"
            detail = f"a message takes {median(own) * 1e6:.0f} us, between others {usual * 1e6:.0f} us"
            yield Finding("mpi_slow_latency", host, f"{shown}; between others {usual * 1e6:.0f} us", detail)


def _most(words: Iterable[bool]) -> bool:
    """More than half: a host has one slow pair with each slow host."""
    each = list(words)
    return 2 * sum(each) > len(each)
