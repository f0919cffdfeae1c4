"""A real connection between each pair of hosts, on ports that MPI uses."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from runner.diagnosis import loose
from runner.diagnosis.model import Finding, HostView, Rule

Pair = tuple[str, str]  # who tried, and whom
FILTERED = re.compile(r"timed out|no route|unreachable|not permitted|prohibited", re.IGNORECASE)
SAYS = {  # of a host that reaches nobody, and of one that some do not reach
    "port_closed": ("it reaches no other host", "closed for"),
    "large_packets_lost": ("its large packets reach no other host", "no large packets from"),
}

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
        "see who listens with 'ss -ltnp' and end it, or state another cluster_port",
    ),
    Rule(
        "no_route_to_host",
        "blocking",
        "The host itself has no way to another host",
        "its own routing table or rules refuse the address: no route, or one of type unreachable, prohibit or"
        " blackhole",
        "on this host see 'ip route get ADDRESS', 'ip route' and 'ip rule'; delete what refuses the address,"
        " or add the route that is missing, in the network's configuration too",
    ),
    Rule(
        "large_packets_lost",
        "blocking",
        "Connections to the host open, and large packets do not come through",
        "an interface or switch on the way has a smaller MTU than the hosts, or a firewall drops large"
        " packets or the ICMP messages that tell their size",
        "give the interfaces of all hosts and the switch's ports the same MTU ('ip link'); 'ping -M do -s"
        " 1472 ADDRESS' (8972 for an MTU of 9000) shows what passes; let ICMP through",
    ),
    Rule(
        "loopback_down",
        "blocking",
        "The loopback interface is down",
        "somebody or a script set it down; processes of one host, MPI's daemon and its ranks among them, talk"
        " to each other over it",
        "ip link set lo up; on a host that boots so, mend its network's configuration",
    ),
    Rule(
        "loopback_blocked",
        "blocking",
        "The host cannot connect to itself",
        "its firewall forgets the interface lo, or an address of its own; processes of one host, MPI's daemon"
        " and its ranks among them, talk so",
        "let in what comes over lo, before all other rules: nft insert rule FAMILY TABLE CHAIN iif lo"
        " accept, or iptables -I INPUT -i lo accept; in the firewall's configuration, too",
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
    for host in hosts:
        yield from _loopback(host)
        yield from _busy(host.name, met[host.name])
    pairs = [(one, two) for one in met for two in met]
    no_way = {(one, two): why for one, two in pairs if (why := _no_way(met[one], two))}
    stalled = {(one, two): why for one, two in pairs if (why := _stalled(met[one], two))}
    told = {(one, two) for one, two in pairs if {(one, two), (two, one)} & no_way.keys()}  # nor can it answer
    failed = {(one, two): why for one, two in pairs if (why := _failures(met[one], met[two], two))}
    closed: dict[Pair, str] = {}
    for (one, two), why in failed.items():
        if (one, two) not in told and _were_there(met[one], met[two], one, two, why):
            closed[one, two] = why
        elif (one, two) not in told:
            yield Finding(
                "pair_not_met", two, f"{one} -> {two}: {why}", f"nothing is known of {one} to {two}"
            )
    yield from _refused(no_way, list(met))
    yield from _closed("port_closed", closed, list(met))
    yield from _closed("large_packets_lost", stalled, list(met))


def _busy(name: str, told: Mapping[str, Any]) -> Iterator[Finding]:
    for port, error in [*loose.mapping(told.get("ports")).items()][:1]:  # the others may be anybody's
        if isinstance(error, str) and error and told.get("doctor") is not True:
            yield Finding("port_busy", name, f"listen on port {port}: {error}", f"port {port} is taken")


def _refused(no_way: Mapping[Pair, str], names: Sequence[str]) -> Iterator[Finding]:
    for name in names:
        if ways := {two: why for (one, two), why in no_way.items() if one == name}:
            two, why = next(iter(ways.items()))
            shown = f"{name} -> {two}: {why}"
            yield Finding("no_route_to_host", name, shown, f"its own kernel refuses {', '.join(ways)}")


def _loopback(host: HostView) -> Iterator[Finding]:
    for row in loose.rows(host.data("interfaces")):
        flags = loose.texts(row, "flags")
        if loose.text(row, "ifname") == "lo" and "LOOPBACK" in flags and "UP" not in flags:
            shown = f"lo: <{','.join(flags)}> state {loose.text(row, 'operstate')}"
            yield Finding("loopback_down", host.name, shown, "lo is down")
            return
    for row in loose.rows(host.data("loopback"))[:1]:
        address = loose.text(row, "address")
        shown = f"{host.name} -> {address}: {loose.text(row, 'error')}"
        yield Finding("loopback_blocked", host.name, shown, f"no connection to its own address {address}")


def _no_way(told: Mapping[str, Any], two: str) -> str:
    """What the own kernel said of every port of ``two``, "" where one was not refused by it."""
    rows = loose.items(loose.mapping(told.get("reached")).get(two))
    whys = [loose.text(said, "here") if said.get("open") is not True else "" for _, said in rows]
    return whys[0] if whys and all(whys) else ""


def _stalled(told: Mapping[str, Any], two: str) -> str:
    """Told where large packets to ``two`` stayed on the way on all ports; of one alone it may be chance."""
    rows = loose.items(loose.mapping(told.get("reached")).get(two))
    said = {port: row["stalled"] for port, row in rows if isinstance(row.get("stalled"), bool)}
    if len(said) < 2 or not all(said.values()):
        return ""
    return f"ports {', '.join(said)}: small packets come through, large ones are not acknowledged"


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


def _closed(code: str, closed: Mapping[Pair, str], names: Sequence[str]) -> Iterator[Finding]:
    """One finding per host: the one that reaches nobody while others do; else the one that is not reached."""
    nobody, for_some = SAYS[code]
    cut_off = [name for name in names if _is_cut_off(name, closed, names)]
    for (one, two), said in closed.items():
        if one in cut_off and two == next(name for name in names if name != one):
            yield Finding(code, one, f"{one} -> {two}: {said}", nobody)
    for two in names:
        ways = {one: said for (one, last), said in closed.items() if last == two and one not in cut_off}
        if ways:
            one, said = next(iter(ways.items()))
            yield Finding(code, two, f"{one} -> {two}: {said}", f"{for_some} {', '.join(ways)}")


def _is_cut_off(one: str, closed: Mapping[Pair, str], names: Sequence[str]) -> bool:
    """Whether it reaches none of the others, each of which somebody else reaches."""
    others = [name for name in names if name != one]
    return all(
        (one, two) in closed and any((three, two) not in closed for three in others if three != two)
        for two in others
    )
