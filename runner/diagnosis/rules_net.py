"""The network of the hosts: what names mean, and which interfaces lead to the others."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from runner.diagnosis import loose
from runner.diagnosis.model import Finding, HostView, Rule, Stated

SLOW_S = 0.5  # for a name; every connection of every rank pays it
_HOSTS = re.compile(r"^[ \t]*hosts:([^#\n]*)", re.MULTILINE)
FILES = {"files", "resolve", "compat", "db", "nis", "sss"}  # services that know /etc/hosts, or may
# What container engines, hypervisors and tunnels make; MPI and NCCL take such interfaces for real ones.
VIRTUAL = re.compile(r"(docker|br-|virbr|veth|cni|flannel|cali|lxc|lxd|podman|vmnet|vboxnet|tun|tap|weave)")

RULES = (
    Rule(
        "name_unknown",
        "warning",
        "A host's name is not known on the host",
        "it stands neither in /etc/hosts nor in the name service that the host asks",
        "run provision, which puts all hosts of the inventory into /etc/hosts; a host's own name that is not"
        " the inventory's: set it with 'hostnamectl set-hostname', or add a line for it to /etc/hosts",
    ),
    Rule(
        "name_files_not_asked",
        "warning",
        "Names of hosts are not looked up in /etc/hosts",
        "the line hosts: of /etc/nsswitch.conf does not say files",
        "put files first into that line, as in 'hosts: files dns'; then look again",
    ),
    Rule(
        "name_slow",
        "warning",
        "A host's name takes long to look up",
        "a nameserver in /etc/resolv.conf does not answer; it is asked before /etc/hosts, or the name is not"
        " there",
        "run provision, which puts all hosts into /etc/hosts; mend or remove that nameserver",
    ),
    Rule(
        "name_loopback",
        "warning",
        "A host's name means the loopback address",
        "/etc/hosts has it beside such an address, as Debian's installer writes it; other hosts that are told"
        " this address talk to themselves, and the start hangs",
        "take the name out of that line of /etc/hosts; provision does, but for lines of 127.0.0.1",
    ),
    Rule(
        "name_elsewhere",
        "warning",
        "A host's name means another address than the inventory's",
        "an old entry in /etc/hosts or in the name service, or a name that two machines have",
        "correct the entry, or state the address for the other hosts as host_names_address in the inventory",
    ),
    Rule(
        "no_interface_in_cidr",
        "blocking",
        "No interface is in the network of the ranks",
        "the interface has no address there, is another one, or cluster_cidr states another network",
        "compare 'ip -brief address' with cluster_cidr, and correct the one that is wrong",
    ),
    Rule(
        "interfaces_in_cidr",
        "warning",
        "Several interfaces are in the network of the ranks",
        "two cards were put into one network, or the network stated is too wide; answers may leave by the"
        " other card",
        "state a narrower network in cluster_cidr, or give the second card a network of its own",
    ),
    Rule(
        "interface_missing",
        "blocking",
        "The interface that the inventory states is not there",
        "it is called otherwise on this host, so NCCL finds no interface and ends",
        "state the name that 'ip -brief address' shows as cluster_interface; the same on all hosts",
    ),
    Rule(
        "interface_down",
        "blocking",
        "The interface that the inventory states is down",
        "no cable, a port of the switch that is off, or it was not brought up",
        "see 'ip link' and the cable, then bring it up: ip link set INTERFACE up",
    ),
    Rule(
        "virtual_interface_chosen",
        "warning",
        "MPI or NCCL may choose an interface that leads to no other host",
        "cluster_cidr or cluster_interface is not stated, so they try each interface, those of containers and"
        " virtual machines too, and hang",
        "state cluster_cidr and cluster_interface in the inventory",
    ),
)


def check(hosts: Sequence[HostView]) -> Iterator[Finding]:
    """Yield what keeps the hosts from talking with one another."""
    for host in hosts:
        yield from _interfaces(host, len(hosts) > 1)
        if len(hosts) > 1:
            yield from _names(host, {each.name: each.stated.address for each in hosts})


# --- names -----------------------------------------------------------------------------------


def _names(host: HostView, stated: Mapping[str, str]) -> Iterator[Finding]:
    """What each name means on this host; ``stated`` is the address of each by the inventory."""
    unknown: dict[str, str] = {}
    for name, said in loose.items(host.data("names")):
        whose = f"{name}, the host's own name," if name not in stated else name
        addresses, seconds = loose.texts(said, "addresses"), loose.number(said, "seconds") or 0.0
        shown = f"{name}: {', '.join(addresses) or loose.text(said, 'error')} in {seconds:.3f} s"
        no_answer = loose.text(said, "error") == "no answer"  # in time: what it means is not known
        if not addresses and not no_answer:
            unknown[whose] = shown
        elif any(address.startswith("127.") for address in addresses):
            yield Finding("name_loopback", host.name, shown, f"{whose} means this machine itself")
        elif addresses and _is_elsewhere(stated.get(name, ""), addresses):
            detail = f"{whose} means {', '.join(addresses)}, not {stated[name]}"
            yield Finding("name_elsewhere", host.name, shown, detail)
        if no_answer or seconds > SLOW_S:
            took = "has no answer after" if no_answer else "took"
            yield Finding("name_slow", host.name, shown, f"{whose} {took} {seconds:.1f} s")
    yield from _unknown(host, unknown)


def _unknown(host: HostView, unknown: Mapping[str, str]) -> Iterator[Finding]:
    """All in one finding: they have one cause."""
    asked = _HOSTS.search(host.text("nsswitch"))
    if unknown and asked and not set(asked[1].split()) & FILES:
        shown = f"/etc/nsswitch.conf: {asked[0].strip()}"
        yield Finding("name_files_not_asked", host.name, shown, f"{', '.join(unknown)}: not known here")
    elif unknown:
        means = "means" if len(unknown) == 1 else "mean"
        detail = f"{', '.join(unknown)} {means} nothing here"
        yield Finding("name_unknown", host.name, "; ".join(unknown.values()), detail)


def _is_elsewhere(stated: str, found: Sequence[str]) -> bool:
    """Whether an IPv4 address that is stated is not among those found."""
    try:
        return str(ipaddress.IPv4Address(stated)) not in found
    except ValueError:  # a name, or not stated
        return False


# --- interfaces ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Interface:
    """One interface: ``addresses`` as in "192.168.10.11/24"; ``state`` as ``ip`` says it."""

    name: str
    state: str
    addresses: tuple[str, ...]

    def is_in(self, cidr: str) -> bool:
        """Whether an address of it lies in that network."""
        network = ipaddress.ip_network(cidr, strict=False)
        return any(ipaddress.ip_interface(each).ip in network for each in self.addresses)


def interfaces(host: HostView) -> list[Interface]:
    """Every interface but loopback that has an IPv4 address, by ``ip -json -4 address``."""
    found = []
    for row in loose.rows(host.data("interfaces")):
        name, pairs = loose.text(row, "ifname"), loose.rows(row.get("addr_info"))
        texts = [f"{loose.text(each, 'local')}/{loose.number(each, 'prefixlen') or 0:.0f}" for each in pairs]
        addresses = tuple(each for each in texts if _is_address(each))
        if name and addresses and "LOOPBACK" not in loose.texts(row, "flags"):
            found.append(Interface(name, loose.text(row, "operstate"), addresses))
    return found


def of_ranks(host: HostView) -> list[Interface]:
    """Those that lead to the other hosts, as far as the inventory tells."""
    stated, found = host.stated, interfaces(host)
    if stated.cidr:
        return [each for each in found if each.is_in(stated.cidr)]
    if stated.interface:
        return [each for each in found if each.name == stated.interface]
    return [each for each in found if stated.address in [one.partition("/")[0] for one in each.addresses]]


def _is_address(text: str) -> bool:
    try:
        return bool(ipaddress.IPv4Interface(text))
    except ValueError:
        return False


def _interfaces(host: HostView, has_others: bool) -> Iterator[Finding]:
    found = interfaces(host)
    if not loose.rows(host.data("interfaces")):  # there is no ip, or it said nothing
        return
    shown = ", ".join(f"{each.name} {' '.join(each.addresses)}" for each in found) or "loopback alone"
    for code, detail in (
        *_in_network(found, host.stated.cidr),
        *_by_name(found, host.stated.interface),
        *_virtual(found, host.stated, has_others),
    ):
        yield Finding(code, host.name, shown, detail)


def _in_network(found: Sequence[Interface], cidr: str) -> Iterator[tuple[str, str]]:
    inside = [each.name for each in found if cidr and each.is_in(cidr)]
    if cidr and not inside:
        yield "no_interface_in_cidr", f"none is in {cidr}"
    if len(inside) > 1:
        yield "interfaces_in_cidr", f"{' and '.join(inside)} are in {cidr}"


def _by_name(found: Sequence[Interface], stated: str) -> Iterator[tuple[str, str]]:
    own = [each for each in found if each.name == stated]
    if stated and not own:
        yield "interface_missing", f"there is no {stated} with an IPv4 address"
    for each in own:
        if each.state == "DOWN":
            yield "interface_down", f"{each.name} is down"


def _virtual(found: Sequence[Interface], stated: Stated, has_others: bool) -> Iterator[tuple[str, str]]:
    virtual = [each.name for each in found if VIRTUAL.match(each.name)]
    if has_others and virtual and not (stated.cidr and stated.interface):
        yield "virtual_interface_chosen", f"{', '.join(virtual)} may be chosen"
