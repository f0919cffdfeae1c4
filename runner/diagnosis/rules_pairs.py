"""A real connection between each pair of hosts, on ports that MPI uses."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from runner.diagnosis import loose
from runner.diagnosis.model import Finding, HostView, Rule

Pair = tuple[str, str]  # who tried, and whom
FILTERED = re.compile(r"timed out|no route|unreachable|not permitted|prohibited", re.IGNORECASE)

RULES = (
    Rule(
        "port_closed",
        "blocking",
        "Other hosts cannot connect to ports of MPI",
        "a firewall on one of the hosts or between them drops or rejects it, or no route leads there",
        "let the hosts of the cluster reach one another on all ports above 1023 (nft, firewalld, ufw, or the"
        " rules of the cloud)",
    ),
    Rule(
        "port_busy",
        "warning",
        "A port of MPI is taken",
        "a run or another program listens there already",
        "see who listens with 'ss -ltnp'; end it, or state another cluster_port",
    ),
    Rule(
        "pair_not_met",
        "info",
        "Two hosts did not look at the same time, so it is not known whether they can connect",
        "one of them was slow to log in to or to start Python, or the evidence says why its address was not"
        " reached",
        "look again; where it stays, look at the address that the inventory states of it, or at why that host"
        " is slow",
    ),
)


def check(hosts: Sequence[HostView]) -> Iterator[Finding]:
    """Yield pairs that could not connect: who is cut off, as far as the others show it."""
    met = {host.name: loose.mapping(host.data("pairs")) for host in hosts}
    for name, told in met.items():
        for port, error in [*loose.mapping(told.get("ports")).items()][:1]:  # the others may be anybody's
            if isinstance(error, str) and error:
                yield Finding("port_busy", name, f"listen on port {port}: {error}", f"port {port} is taken")
    closed: dict[Pair, str] = {}
    for one, told in met.items():
        for two, other in met.items():
            said = _failures(told, other, two)
            if said and _were_there(told, other, one, two, said):
                closed[one, two] = said
            elif said:
                shown = f"{one} -> {two}: {said}"
                yield Finding("pair_not_met", two, shown, f"nothing is known of {one} to {two}")
    yield from _closed(closed, list(met))


def _failures(told: Mapping[str, Any], other: Mapping[str, Any], two: str) -> str:
    """What tries of ports that were open on ``two`` said where they failed, "" where none did."""
    doors, found = loose.mapping(other.get("ports")), []
    for port, said in loose.items(loose.mapping(told.get("reached")).get(two)):
        if said.get("open") is not True and doors.get(port) == "":  # it is open there
            counts = [f"{why} {count}x" for why, count in loose.mapping(said.get("said")).items()]
            found.append(f"port {port}: {', '.join(counts) or 'no try'}")
    return "; ".join(found)


def _were_there(told: Mapping[str, Any], other: Mapping[str, Any], one: str, two: str, said: str) -> bool:
    """Whether both looked at the same time: one heard the other, or nothing says that nobody is there.

    A host that has closed its ports again refuses a connection as some firewalls do.
    """
    return two in _heard(told) or one in _heard(other) or bool(FILTERED.search(said))


def _heard(told: Mapping[str, Any]) -> set[str]:
    """Who came, on whatever port."""
    heard = loose.mapping(told.get("heard"))
    return {name for port in heard for name in loose.texts(heard, port)}


def _closed(closed: Mapping[Pair, str], names: Sequence[str]) -> Iterator[Finding]:
    """One finding per host: the one that reaches nobody while others do; else the one that is not reached."""
    cut_off = [name for name in names if _is_cut_off(name, closed, names)]
    for (one, two), said in closed.items():
        if one in cut_off and two == next(name for name in names if name != one):
            yield Finding("port_closed", one, f"{one} -> {two}: {said}", "it reaches no other host")
    for two in names:
        ways = {one: said for (one, last), said in closed.items() if last == two and one not in cut_off}
        if ways:
            one, said = next(iter(ways.items()))
            yield Finding("port_closed", two, f"{one} -> {two}: {said}", f"closed for {', '.join(ways)}")


def _is_cut_off(one: str, closed: Mapping[Pair, str], names: Sequence[str]) -> bool:
    """Whether it reaches none of the others, each of which somebody else reaches."""
    others = [name for name in names if name != one]
    return all(
        (one, two) in closed and any((three, two) not in closed for three in others if three != two)
        for two in others
    )
