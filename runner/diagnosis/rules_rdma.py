"""The RDMA network: devices, links, addresses, firmware, and the way from the cards' memory to it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from runner.diagnosis import smi
from runner.diagnosis.model import Finding, HostView, Rule
from runner.diagnosis.rules_nccl import takes
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
        "give the interface its IPv4 address; NCCL then finds the entry by itself from 2.21 on",
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
_LAYER = {"infiniband": "InfiniBand", "roce": "Ethernet"}
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
    yield from _differing(seen)
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
    up = {name: port for name, port in ports.items() if _active(port)}
    for name, port in ports.items():
        if name not in up:
            yield Finding(
                "rdma_port_down" if up else "rdma_link_down", host.name, _shown(name, port), _why(port)
            )
            if not up:
                return
    layer = _LAYER[host.stated.fabric]
    right = [name for name, port in up.items() if port.get("link_layer") == layer]
    if not right:
        name, port = next(iter(up.items()))
        text = f"cluster_fabric says {host.stated.fabric}, no active port has {layer}"
        yield Finding("rdma_layer", host.name, _shown(name, port), text)


def _adapters(host: HostView, ports: Ports) -> Iterator[Finding]:
    """Where no port is active, that is the finding."""
    wanted = host.stated.adapters
    up = [name for name, port in ports.items() if _active(port)]
    if wanted and up and not any(takes(wanted, name) for name in up):
        shown = f"active ports: {', '.join(sorted(up))}"
        yield Finding("rdma_adapter_unknown", host.name, shown, f"NCCL_IB_HCA is {wanted}")


def _why(port: Mapping[str, Any]) -> str:
    if "INIT" in str(port.get("state")):
        return "the link is up and no subnet manager has set it up"
    if "Polling" in str(port.get("phys_state")):
        return "no link: no cable, or nothing at its other end"
    if "Disabled" in str(port.get("phys_state")):
        return "the port is disabled"
    return "the port carries nothing"


def _v2(port: Mapping[str, Any]) -> list[int]:
    """The indexes of RoCE v2 entries with an IPv4 address."""
    entries = port.get("gids")
    return [
        int(entry["index"])
        for entry in (entries if isinstance(entries, list) else [])
        if isinstance(entry, dict)
        and entry.get("type") == "RoCE v2"
        and _MAPPED.match(str(entry.get("gid")))
        and str(entry.get("index")).isdecimal()
    ]


def _gids(host: HostView, ports: Ports) -> Iterator[Finding]:
    if host.stated.fabric != "roce":
        return
    up = {
        name: port for name, port in ports.items() if _active(port) and port.get("link_layer") == "Ethernet"
    }
    if up and not any(map(_v2, up.values())):
        name, port = next(iter(up.items()))
        count = len(port.get("gids") or [])
        text = f"none of the {count} addresses of {name} is one of RoCE v2 with IPv4"
        yield Finding("roce_gid_missing", host.name, _shown(name, port), text)


def _differing(seen: Mapping[str, Ports]) -> Iterator[Finding]:
    """What should be alike on all hosts. Adapters are told apart by their kind: names differ by slot."""
    for code, values in (
        ("rdma_rate", {host: _rates(ports) for host, ports in seen.items()}),
        ("roce_gid_differs", {host: _indexes(ports) for host, ports in seen.items()}),
    ):
        for host, value, usual in unlike(values):
            yield Finding(code, host, value, f"the other hosts have {usual}")
    boards = {str(port.get("board_id")) for ports in seen.values() for port in ports.values()}
    for board in sorted(boards):
        firmware = {host: _firmware(ports, board) for host, ports in seen.items()}
        for host, value, usual in unlike(firmware):
            text = f"adapters of kind {board} have {usual} on the other hosts"
            yield Finding("rdma_firmware_differs", host, f"fw_ver {value}", text)


def _rates(ports: Ports) -> str:
    return ", ".join(sorted(str(port.get("rate")) for port in ports.values() if _active(port)))


def _indexes(ports: Ports) -> str:
    """The first index of each active port that carries RoCE v2, in the order of the ports."""
    found = [_v2(port) for port in ports.values() if _active(port)]
    return ", ".join(f"index {min(each)}" for each in found if each)


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
    return "DMA-BUF" if smi.dma_buf(smi.devices_of(host), smi.module_of(host), kernel) else ""
