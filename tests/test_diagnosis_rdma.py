"""RDMA: each rule finds its fault in a host that is broken in that one way.

No host with RDMA was at hand. States, rates, layers and firmware are in the forms of sysfs and ibstat that
the kernel and rdma-core document; GIDs as show_gids lists them. Access Control Services are read from bytes
laid out by the PCI Express specification.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gpu_hosts import PORT, ROCE, Case, diagnosed, found, host, said

from runner import looking
from runner.diagnosis import rules_rdma
from runner.diagnosis.model import HostView, Probe
from runner.io import inventory, probing

SYSFS = "the kernel's documents of sysfs, class infiniband"
DOWN = {**PORT, "state": "1: DOWN", "phys_state": "2: Polling"}
INIT = {**PORT, "state": "2: INIT"}
LINK_LOCAL = {**ROCE["gids"][1], "gid": "fe80:0000:0000:0000:0ac0:ebff:fe03:0054"}
OTHER = {**ROCE["gids"][1], "index": 5}
SLOW = {**ROCE, "rate": "25 Gb/sec (1X EDR)"}  # for management
BARE = {**ROCE, "gids": [LINK_LOCAL]}
IPV6 = {
    **ROCE,
    "gids": [LINK_LOCAL, {**LINK_LOCAL, "index": 5, "gid": "2001:0db8:0000:0000:0000:0000:0000:0001"}],
}
CLOSED = {
    "gpu_module": said(
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  Tue Jun 23 08:38:17 UTC 2026\n"
    )
}
NO_PEER = {"rdma_peer_memory": said({"modules": [], "symbol": True})}
V100 = {**CLOSED, "gpu_pci": said("0000:15:00.0 0x030200 0x1db5\n"), **NO_PEER}
OLD_KERNEL = {**NO_PEER, "kernel": said("Linux 5.4.0-216-generic #236-Ubuntu SMP x86_64\n")}


def ports(*given: Mapping[str, Any]) -> dict[str, Probe]:
    return {"rdma_ports": said({f"mlx5_{number}/1": port for number, port in enumerate(given)})}


def one(
    code: str, probes: Mapping[str, Probe], evidence: str, detail: str, fabric: str = "infiniband"
) -> Case:
    return Case(code, [host(probes=probes, fabric=fabric)], evidence, detail, SYSFS)


def lacking(stated: str, has: Mapping[str, Any], evidence: str) -> Case:
    """A host without the adapter that NCCL_IB_HCA states; the names are those that rdma-core gives."""
    hosts = [host(probes={"rdma_ports": said(has)}, adapters=stated)]
    return Case("rdma_adapter_unknown", hosts, evidence, f"NCCL_IB_HCA is {stated}", SYSFS)


def rail(code: str, adapters: str, has: Mapping[str, Probe], count: str) -> Case:
    """RoCE with ports that lack an address."""
    return Case(code, [host(probes=has, fabric="roce", adapters=adapters)], "Ethernet", count, SYSFS)


def last(code: str, usual: HostView, probes: Mapping[str, Probe], evidence: str, detail: str) -> Case:
    """Of three hosts the last is unlike the others."""
    hosts = [replace(usual, name=name) for name in ("gpu1", "gpu2", "gpu3")]
    hosts[2] = replace(hosts[2], probes={**usual.probes, **probes})
    return Case(code, hosts, evidence, detail, SYSFS, 2)


CASES = (
    one("rdma_device_missing", ports(), "/sys/class/infiniband", "cluster_fabric says infiniband"),
    one("rdma_layer", ports(ROCE), "Ethernet", "no active port has InfiniBand"),
    one("rdma_layer", ports(PORT), "InfiniBand", "no active port has Ethernet", "roce"),
    one("rdma_link_down", ports(DOWN), "mlx5_0/1: 1: DOWN, 2: Polling", "no cable"),
    one("rdma_link_down", ports(INIT), "2: INIT", "no subnet manager"),
    one("rdma_link_down", ports(INIT, INIT, SLOW), "mlx5_0/1: 2: INIT",
        "no subnet manager has set it up; active, and no InfiniBand: mlx5_2/1"),
    one("rdma_link_down", ports(DOWN, INIT, SLOW), "mlx5_1/1: 2: INIT", "no subnet manager"),
    one("rdma_link_down", ports(SLOW, DOWN, DOWN), "mlx5_1/1: 1: DOWN", "no cable"),
    one("rdma_link_down", ports(PORT, {**ROCE, "state": "1: DOWN"}), "mlx5_1/1", "no Ethernet: mlx5_0/1",
        "roce"),
    Case("rdma_link_down", [host(probes=ports(INIT, SLOW), adapters="mlx5_0")], "mlx5_0/1", "subnet", SYSFS),
    lacking("mlx5_0:1", {"ibp12s0/1": PORT}, "active ports: ibp12s0/1"),
    lacking("mlx5_0:1", {"mlx5_0/2": PORT, "rocep12s0/1": PORT}, "active ports: mlx5_0/2, rocep12s0/1"),
    lacking("=mlx5_1", {"mlx5_10/1": PORT}, "active ports: mlx5_10/1"),
    one("rdma_port_down", ports(PORT, DOWN), "mlx5_1/1: 1: DOWN", "no cable"),
    one("roce_gid_missing", ports({**ROCE, "gids": ROCE["gids"][:1]}), "Ethernet", "none of the 1 addresses",
        "roce"),
    one("roce_gid_missing", ports(BARE), "Ethernet", "none of the 1", "roce"),
    rail("roce_gid_missing", "", ports(IPV6), "without: 1 of 1"),
    rail("roce_gid_missing", "mlx5_0,mlx5_1:1", ports(ROCE, BARE), "of mlx5_1/1 is one of RoCE v2 with IPv4"),
    rail("roce_gid_missing", "=mlx5_1", ports(ROCE, BARE), "of mlx5_1/1"),
    rail("roce_gid_missing", "^mlx5_0", ports(SLOW, BARE, BARE), "without: 2 of 2"),
    rail("roce_gid_some_missing", "", ports(ROCE, BARE, ROCE), "addresses of mlx5_1/1 is one"),
    rail("roce_gid_some_missing", "", ports(SLOW, BARE, BARE), "without: 2 of 2"),
    rail("roce_gid_some_missing", "mlx5", ports(ROCE, BARE), "without: 1 of 2"),
    rail("roce_gid_some_missing", "^mlx5_0", ports(ROCE, BARE, ROCE), "without: 1 of 2"),
    last("roce_gid_some_missing", host(probes=ports(ROCE, ROCE), fabric="roce"), ports(ROCE, BARE),
         "mlx5_1/1", "without: 1 of 2"),
    last("rdma_rate", host(), ports({**PORT, "rate": "25 Gb/sec (1X EDR)"}), "25 Gb/sec",
         "the other hosts have 100 Gb/sec"),
    last("rdma_rate", host(probes=ports(PORT, PORT)), ports(PORT, {**PORT, "rate": "50 Gb/sec (2X EDR)"}),
         "100 Gb/sec", "the other hosts have 100 Gb/sec, 100 Gb/sec"),
    last("roce_gid_differs", host(probes=ports(ROCE), fabric="roce"),
         ports({**ROCE, "gids": [ROCE["gids"][0], OTHER]}), "index 5", "the other hosts have index 3"),
    last("rdma_firmware_differs", host(), ports({**PORT, "fw_ver": "16.35.2000"}), "fw_ver 16.35.2000",
         "adapters of kind MT_0000000008 have 16.27.2008"),
    one("peer_memory_missing", V100, "nvidia_peermem", "no host can"),
    one("peer_memory_missing", OLD_KERNEL, "nvidia_peermem", "no host can"),
    last("peer_memory_differs", host(), OLD_KERNEL, "nvidia_peermem", "gpu1, gpu2 can"),
)  # fmt: skip


@pytest.mark.parametrize("case", [pytest.param(case, id=f"{case.code}-{n}") for n, case in enumerate(CASES)])
def test_a_host_broken_in_one_way(case: Case) -> None:
    found(case)


def test_every_rule_has_a_case() -> None:
    assert {case.code for case in CASES} == {rule.code for rule in rules_rdma.RULES}


@pytest.mark.parametrize(
    ("fabric", "probes"),
    [
        pytest.param("infiniband", ports(PORT), id="InfiniBand"),
        pytest.param("infiniband", ports(PORT, ROCE), id="InfiniBand beside Ethernet"),
        pytest.param("roce", ports(ROCE), id="RoCE"),
        pytest.param("ethernet", ports(DOWN), id="Ethernet: nobody asks"),
        pytest.param("infiniband", {**ports(PORT), **NO_PEER}, id="DMA-BUF in the place of nvidia_peermem"),
    ],
)
def test_healthy_hosts_have_no_finding(fabric: str, probes: Mapping[str, Probe]) -> None:
    assert diagnosed([host(name, probes, fabric=fabric) for name in ("gpu1", "gpu2")]) == []


@pytest.mark.parametrize(
    ("fabric", "usual", "other"),
    [
        ("infiniband", ports(PORT), ports({**PORT, "rate": "100 Gb/sec (2X HDR)"})),
        (
            "infiniband",
            ports({**PORT, "rate": "200 Gb/sec (4X HDR)"}),
            ports({**PORT, "rate": "200 Gb/sec (2X NDR)"}),
        ),
        ("infiniband", ports(PORT, ROCE), ports(PORT)),
        ("infiniband", ports(PORT, ROCE), ports(PORT, {**ROCE, "gids": [OTHER]})),
        ("roce", ports(ROCE, SLOW), ports(ROCE)),
        ("roce", ports(ROCE, SLOW), ports(ROCE, {**SLOW, "gids": [OTHER]})),
        ("roce", ports(ROCE, SLOW), ports(ROCE, {**SLOW, "gids": [LINK_LOCAL]})),
    ],
)
def test_hosts_that_differ_where_it_does_not_matter(
    fabric: str, usual: Mapping[str, Probe], other: Mapping[str, Probe]
) -> None:
    """One rate in other words, or a port for management that is another or not there."""
    hosts = [host("gpu1", usual, fabric=fabric), host("gpu2", usual, fabric=fabric)]
    assert diagnosed([*hosts, host("gpu3", other, fabric=fabric)]) == []


@pytest.mark.parametrize(
    ("env", "has", "codes"),
    [
        ({}, IPV6, ["roce_gid_missing"]),
        ({"NCCL_IB_ADDR_FAMILY": "AF_INET"}, IPV6, ["roce_gid_missing"]),
        ({"NCCL_IB_ADDR_FAMILY": "AF_INET6"}, IPV6, []),
        ({"NCCL_IB_ADDR_FAMILY": "AF_INET6"}, BARE, ["roce_gid_missing"]),
        ({"NCCL_IB_GID_INDEX": "5"}, IPV6, []),
    ],
)
def test_roce_over_ipv6_where_the_cluster_says_so(
    env: Mapping[str, str], has: Mapping[str, Any], codes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = replace(inventory.outline("v100x32"), fabric="roce", env=env)
    answer = {"argv": [], "status": 0, "out": json.dumps({"mlx5_0/1": has}), "err": "", "why": None}
    monkeypatch.setattr(probing, "ask", lambda *_: {"gpu1": {"probes": {"rdma_ports": answer}}})
    seen = looking.look(made, made.hosts[:1], {"gpu1": {}}, lambda: False, ["rdma_ports"])
    assert [each.code for each in rules_rdma.check(seen)] == codes


@pytest.mark.parametrize("stated", ["", "mlx5", "mlx5_0:1", "mlx5_0,rocep12s0", "^rocep12s0"])
def test_an_adapter_that_the_host_has(stated: str) -> None:
    assert diagnosed([host(probes=ports(PORT), adapters=stated)]) == []


def test_an_adapter_that_is_stated_and_not_active() -> None:
    """mlx5_1 carries nothing, and mlx5_0 is not to be taken."""
    (_, finding) = diagnosed([host(probes=ports(PORT, DOWN), adapters="mlx5_1")])
    assert (finding.code, finding.evidence) == ("rdma_adapter_unknown", "active ports: mlx5_0/1")


def test_without_any_active_port_the_adapters_name_is_no_finding() -> None:
    (finding,) = diagnosed([host(probes=ports(DOWN), adapters="rocep12s0")])
    assert finding.code == "rdma_link_down"


def test_what_the_missing_way_to_the_cards_memory_is_called_in_the_inventory() -> None:
    rule = next(rule for rule in rules_rdma.RULES if rule.code == "peer_memory_missing")
    assert "rdma_stack: doca" in rule.remedy


def test_adapters_of_two_kinds_have_firmware_of_their_own() -> None:
    """Firmware is compared between adapters of one kind: 16.x is of ConnectX-5, 20.x of ConnectX-6."""
    other = {**PORT, "board_id": "MT_0000000223", "fw_ver": "20.35.2000"}
    assert diagnosed([host("gpu1", ports(PORT)), host("gpu2", ports(PORT)), host("gpu3", ports(other))]) == []


@pytest.mark.parametrize(
    "text",
    ["[]", "null", '{"mlx5_0/1": 7}', '{"mlx5_0/1": {}}', '{"mlx5_0/1": {"gids": 3}}', "{"]
    + [
        json.dumps({"mlx5_0/1": {**ROCE, "gids": gids}})
        for gids in (5, [5], [{**OTHER, "index": "9" * 5000}])
    ]
    + [json.dumps({"mlx5_0/1": {**ROCE, "rate": "9" * 5000 + " Gb/sec"}})],
)
def test_answers_of_another_shape_are_no_crash(text: str) -> None:
    broken = {"rdma_ports": said(text), "rdma_peer_memory": said(text), "gpu_acs": said(text)}
    for fabric in ("infiniband", "roce"):
        diagnosed(
            [host("gpu1", broken, fabric=fabric), HostView("gpu2", broken, stated=host(fabric=fabric).stated)]
        )


# --- Access Control Services, as the look reads them ----------------------------------------------------


def config(*capabilities: tuple[int, int, bytes], size: int = 4096) -> bytes:
    """A device's configuration: extended capabilities by place, number and body; each names the next."""
    made = bytearray(size)
    places = [place for place, _, _ in capabilities] + [0]
    for (place, number, body), after in zip(capabilities, places[1:], strict=True):
        made[place : place + 4] = (number | 1 << 16 | after << 20).to_bytes(4, "little")
        made[place + 4 : place + 4 + len(body)] = body
    return bytes(made)


AER = (0x100, 0x0001, bytes(0x40))


@pytest.mark.parametrize(
    ("given", "control"),
    [
        (config(AER, (0x148, 0x000D, b"\x5f\x00\x1d\x00")), 0x1D),
        (config((0x100, 0x000D, b"\x5f\x00\x00\x00")), 0),
        (config(AER), None),
        (config(size=256), None),  # what a user without root may read
        (
            config((0x100, 0x0001, b""), (0x140, 0x0002, b""), (0x100, 0x0001, b"")),
            None,
        ),  # goes round in a circle
        (config((0xFFC, 0x000D, b"")), None),
    ],
)
def test_the_control_register_of_a_bridge(probe: Any, given: bytes, control: int | None) -> None:
    assert probe.acs_control(given) == control


@pytest.mark.skipif(os.geteuid() != 0, reason="what it reads, root alone may read: it would ask sudo")
def test_bridges_are_read_a_dozen_at_a_time(probe: Any, tmp_path: Path) -> None:
    """Thirty bridges, some without the capability, and devices that are none; one of the old kind."""
    expected = {}
    for number in range(32):
        folder = tmp_path / f"0000:{number:02x}:00.0"
        folder.mkdir()
        bridge = number not in (0, 20)
        (folder / "class").write_text("0x060400\n" if bridge else "0x030200\n")
        services = [(0x148, 0x000D, bytes((0x5F, 0, number, 0)))] if number % 3 else []
        size = 256 if number == 31 else 4096
        (folder / "config").write_bytes(config(AER, *services)[:size])
        if bridge and services and size == 4096:
            expected[folder.name] = number
    assert len(expected) == 19
    assert probe.acs_controls({}, sorted(map(str, tmp_path.iterdir()))) == expected


def test_the_looks_run_on_this_machine(probe: Any) -> None:
    """Functions of the table answer with what the rules read, whatever hardware is here."""
    assert isinstance(json.loads(probe.rdma_ports({})), dict)
    assert isinstance(json.loads(probe.acs({"become": False})), dict)
    for line in probe.nvidia_pci({}).splitlines():
        assert line.split()[1].startswith("0x")
    assert probe.looks_gpu({"gpus": False}) == probe.looks_rdma({"rdma": False}) == {}
