"""The RDMA network: devices, links, addresses, firmware, and the way from the cards' memory to it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from runner.diagnosis import loose, smi
from runner.diagnosis.model import Finding, HostView, Rule
from runner.diagnosis.rules_nccl import LAYERS, RATE, takes
from runner.diagnosis.unlike import unlike

RULES = (
    Rule(
        "rdma_device_missing",
        "blocking",
        "The host has no RDMA device",
        "the adapter's driver is not loaded, the adapter is missing, or cluster_fabric is wrong",
        "look for the adapter in lspci, load its module (mlx5_ib), or correct cluster_fabric",
    ),
    Rule(
        "rdma_layer",
        "blocking",
        "The RDMA links are of another kind than the inventory states",
        "the ports are set to InfiniBand where Ethernet is meant, or the reverse, or cluster_fabric is wrong",
        "correct cluster_fabric, or set LINK_TYPE of the ports with mstconfig and reboot",
    ),
    Rule(
        "rdma_link_down",
        "blocking",
        "No RDMA port of the host is active",
        "no cable, no switch port, no subnet manager, or the interface is down",
        "check cable and switch port; on InfiniBand start a subnet manager (opensm); on RoCE bring the "
        "interface up",
    ),
    Rule(
        "rdma_adapter_unknown",
        "blocking",
        "NCCL_IB_HCA names no active RDMA port of the host",
        "systems name one adapter differently (mlx5_0, ibp12s0, rocep12s0), or that port is not active",
        "name ports that are there in NCCL_IB_HCA of cluster_env, those of all hosts with commas between, or "
        "delete it: NCCL then takes all active ones; the same for UCX_NET_DEVICES",
    ),
    Rule(
        "rdma_port_down",
        "info",
        "An RDMA port is not active",
        "nothing is plugged in, or its link failed",
        "check cable and switch port if it is to be used; else leave it out by NCCL_IB_HCA in cluster_env",
    ),
    Rule(
        "rdma_rate",
        "warning",
        "The RDMA links of a host are slower or fewer than those of the others",
        "a link came up with fewer lanes or at a lower speed: cable, transceiver or switch port",
        "reseat or replace the cable of the slow port; all hosts wait for the slowest",
    ),
    Rule(
        "roce_gid_missing",
        "blocking",
        "No address for RoCE v2 over IPv4",
        "the network interface of the port has no IPv4 address, or RoCE v2 is switched off",
        "give the interface its IPv4 address; NCCL then finds the entry by itself from 2.21 on. Where RoCE "
        "goes over IPv6, state NCCL_IB_ADDR_FAMILY: AF_INET6 in cluster_env",
    ),
    Rule(
        "roce_gid_some_missing",
        "warning",
        "A RoCE port that NCCL would take has no address for it",
        "the network interface of the port has no address, or the port is not for training",
        "give the interface its address, or name the ports for training in NCCL_IB_HCA of cluster_env",
    ),
    Rule(
        "roce_gid_differs",
        "warning",
        "The index of the RoCE v2 address differs between hosts",
        "the interfaces got addresses in another order, or one has more addresses",
        "leave NCCL_IB_GID_INDEX unset (NCCL 2.21 or later chooses per host), or make the interfaces alike",
    ),
    Rule(
        "rdma_firmware_differs",
        "warning",
        "The firmware of the RDMA adapters differs between hosts",
        "an adapter was replaced or updated alone",
        "bring all adapters of one kind to one firmware, and power the hosts off and on",
    ),
    Rule(
        "peer_memory_missing",
        "warning",
        "The RDMA adapter cannot reach the cards' memory",
        "neither nvidia-peermem is loaded nor can DMA-BUF be used (open module, Turing or newer, kernel "
        "5.12)",
        "state rdma_stack: doca and run provision, or install MLNX_OFED or DOCA-OFED and load nvidia-peermem "
        "at every start; without it data takes the detour over host memory",
    ),
    Rule(
        "peer_memory_differs",
        "warning",
        "Some hosts reach the cards' memory by RDMA and this one does not",
        "nvidia-peermem was not loaded after the last start, or the host was provisioned otherwise",
        "load nvidia-peermem here as on the others: one host without it slows down every ring",
    ),
)

Ports = Mapping[str, Mapping[str, Any]]
_MAPPED = re.compile(r"0000:0000:0000:0000:0000:ffff:")  # an IPv4 address as a GID


def check(hosts: Sequence[HostView]) -> Iterator[Finding]:
    """Yield what is wrong with the RDMA network of hosts whose inventory states one."""
    ours = [host for host in hosts if host.stated.has_rdma]
    seen = {host.name: ports_of(host) for host in ours}
    for host in ours:
        if not seen[host.name]:
            if host.probe("rdma_ports").status == 0:
                text = f"cluster_fabric says {host.stated.fabric}"
                yield Finding("rdma_device_missing", host.name, "nothing in /sys/class/infiniband", text)
            continue
        yield from _links(host, seen[host.name])
        yield from _adapters(host, seen[host.name])
        yield from _gids(host, seen[host.name])
    yield from _differing(ours, seen)
    yield from _peer_memory([host for host in ours if host.stated.has_gpus])


def ports_of(host: HostView) -> Ports:
    """What the kernel says of each port, by its name such as mlx5_0/1."""
    data = host.data("rdma_ports")
    ports = data.items() if isinstance(data, dict) else ()
    return {name: port for name, port in ports if isinstance(port, dict)}


def _active(port: Mapping[str, Any]) -> bool:
    return "ACTIVE" in str(port.get("state"))


def _shown(name: str, port: Mapping[str, Any]) -> str:
    return f"{name}: " + ", ".join(
        str(port.get(key)) for key in ("state", "phys_state", "rate", "link_layer")
    )


def _links(host: HostView, ports: Ports) -> Iterator[Finding]:
    """Ports of another layer than the fabric's are for something else, where there are some of its own."""
    layer = LAYERS[host.stated.fabric]
    own = {name: port for name, port in ports.items() if port.get("link_layer") == layer}
    up = [name for name, port in ports.items() if _active(port)]
    if up and not own:
        text = f"cluster_fabric says {host.stated.fabric}, no active port has {layer}"
        yield Finding("rdma_layer", host.name, _shown(up[0], ports[up[0]]), text)
    elif not any(map(_active, (own or ports).values())):
        # Of a port that waits for a subnet manager more is known than of one without a cable.
        name, port = min((own or ports).items(), key=lambda each: "INIT" not in str(each[1].get("state")))
        others = f"; active, and no {layer}: {', '.join(up)}" if up else ""
        yield Finding("rdma_link_down", host.name, _shown(name, port), _why(port) + others)
        return
    for name, port in ports.items():
        if name not in up:
            yield Finding("rdma_port_down", host.name, _shown(name, port), _why(port))


def _adapters(host: HostView, ports: Ports) -> Iterator[Finding]:
    """Where no port of the fabric is active, that is the finding."""
    wanted = host.stated.adapters
    up = [name for name, port in ports.items() if _active(port)]
    if wanted and _of_fabric(host, ports) and not any(takes(wanted, name) for name in up):
        shown = f"active ports: {', '.join(sorted(up))}"
        yield Finding("rdma_adapter_unknown", host.name, shown, f"NCCL_IB_HCA is {wanted}")


def _of_fabric(host: HostView, ports: Ports) -> Ports:
    """The active ports of the fabric's layer."""
    layer = LAYERS[host.stated.fabric]
    return {name: port for name, port in ports.items() if _active(port) and port.get("link_layer") == layer}


def _used(host: HostView, ports: Ports) -> Ports:
    """Those that NCCL is told to take; where it is not told, the fastest: others are for management."""
    up, wanted = _of_fabric(host, ports), host.stated.adapters
    if wanted:
        return {name: port for name, port in up.items() if takes(wanted, name)}
    fastest = max(map(_rate, up.values()), default=0)
    return {name: port for name, port in up.items() if _rate(port) == fastest}


def _rate(port: Mapping[str, Any]) -> float:
    found = RATE.match(loose.text(port, "rate"))
    return float(found[1]) if found else 0


def _why(port: Mapping[str, Any]) -> str:
    if "INIT" in str(port.get("state")):
        return "the link is up and no subnet manager has set it up"
    if "Polling" in str(port.get("phys_state")):
        return "no link: no cable, or nothing at its other end"
    if "Disabled" in str(port.get("phys_state")):
        return "the port is disabled"
    return "the port carries nothing"


def _v2(port: Mapping[str, Any], ipv6: bool) -> list[int]:
    """The indexes of RoCE v2 entries with an IPv4 address; where there is none, maybe of those with IPv6."""
    found = {
        int(index): loose.text(entry, "gid")
        for entry in loose.rows(port.get("gids"))
        if (index := loose.number(entry, "index")) is not None and entry.get("type") == "RoCE v2"
    }
    mapped = [index for index, gid in found.items() if _MAPPED.match(gid)]
    routed = [index for index, gid in found.items() if not gid.startswith("fe80:")]
    return mapped or (routed if ipv6 else [])


def _gids(host: HostView, ports: Ports) -> Iterator[Finding]:
    """A port is known to be for training where NCCL_IB_HCA has its whole name."""
    if host.stated.fabric != "roce":
        return
    wanted, ipv6 = host.stated.adapters, host.stated.ipv6
    used, up = _used(host, ports), _of_fabric(host, ports)
    lacking = [name for name, port in used.items() if not _v2(port, ipv6)]
    if not lacking:
        return
    named = [name for name in lacking if takes("=" + wanted.removeprefix("="), name)]
    none = not any(_v2(port, ipv6) for port in (used if wanted else up).values())
    name = next(iter(named or lacking))
    text = (
        f"none of the {len(loose.rows(ports[name].get('gids')))} addresses of {name} is one of RoCE v2 with "
        f"{'IPv4 or IPv6' if ipv6 else 'IPv4'}; ports without: {len(lacking)} of {len(used)}"
    )
    code = "roce_gid_missing" if named or none else "roce_gid_some_missing"
    yield Finding(code, host.name, _shown(name, ports[name]), text)


def _differing(hosts: Sequence[HostView], seen: Mapping[str, Ports]) -> Iterator[Finding]:
    """What should be alike on all hosts. Adapters are told apart by their kind: names differ by slot."""
    for code, values in (
        ("rdma_rate", {host.name: _rates(_used(host, seen[host.name])) for host in hosts}),
        ("roce_gid_differs", {host.name: _indexes(host, seen[host.name]) for host in hosts}),
    ):
        for name, value, usual in unlike(values):
            yield Finding(code, name, value, f"the other hosts have {usual}")
    boards = {str(port.get("board_id")) for ports in seen.values() for port in ports.values()}
    for board in sorted(boards):
        firmware = {host: _firmware(ports, board) for host, ports in seen.items()}
        for host, value, usual in unlike(firmware):
            text = f"adapters of kind {board} have {usual} on the other hosts"
            yield Finding("rdma_firmware_differs", host, f"fw_ver {value}", text)


def _rates(ports: Ports) -> str:
    """Without the lanes and the generation in brackets: 4X EDR and 2X HDR are as fast."""
    return ", ".join(f"{rate:g} Gb/sec" for rate in sorted(map(_rate, ports.values())) if rate)


def _indexes(host: HostView, ports: Ports) -> str:
    """The first index of RoCE v2 of the ports that have one."""
    if host.stated.fabric != "roce":
        return ""
    found = [_v2(port, host.stated.ipv6) for port in _used(host, ports).values()]
    return ", ".join(f"index {index}" for index in sorted({min(each) for each in found if each}))


def _firmware(ports: Ports, board: str) -> str:
    return ", ".join(
        sorted({str(port.get("fw_ver")) for port in ports.values() if port.get("board_id") == board})
    )


def _peer_memory(hosts: Sequence[HostView]) -> Iterator[Finding]:
    ways = {host.name: way for host in hosts if (way := _way(host)) is not None}
    with_it = [name for name, way in ways.items() if way]
    for name, way in ways.items():
        if not way:
            others = f"{', '.join(with_it)} can" if with_it else "no host can"
            code = "peer_memory_differs" if with_it else "peer_memory_missing"
            yield Finding(code, name, "nvidia_peermem is not among the loaded modules", others)


def _way(host: HostView) -> str | None:
    """How RDMA reaches the cards here, "" if it does not, None where that is not known."""
    data = host.data("rdma_peer_memory")
    if not isinstance(data, dict) or not isinstance(data.get("modules"), list):
        return None
    if data["modules"] and data.get("symbol"):
        return str(data["modules"][0])
    kernel = [*host.text("kernel").split(), "", ""][1]
    return "DMA-BUF" if smi.dma_buf(smi.training_cards(host), smi.module_of(host), kernel) else ""
