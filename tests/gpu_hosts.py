"""A host with cards as it should be, for the tests of the diagnosis to break.

``diagnosis/h100`` is what a real host with one H100 printed (driver 580.159.04), shortened, its UUID
replaced. It had no RDMA device and no container engine: what stands for these follows the forms that are
named there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from runner.diagnosis import rules_container, rules_driver, rules_gpu, rules_links, rules_rdma
from runner.diagnosis.model import Finding, HostView, Probe, Stated

RECORDED = Path(__file__).parent / "diagnosis" / "h100"
MODULES = (rules_driver, rules_gpu, rules_links, rules_rdma, rules_container)
MODEL = "NVIDIA H100 80GB HBM3"
SWITCH = "0000:05:00.0 0x068000 0x22a3\n"  # an NVSwitch of a board with H100: a bridge of NVIDIA's, 10de:22a3
# States, rates and layers of a port as sysfs has them, firmware as ibstat shows it: a ConnectX-5 with EDR.
PORT = {
    "state": "4: ACTIVE",
    "phys_state": "5: LinkUp",
    "rate": "100 Gb/sec (4X EDR)",
    "link_layer": "InfiniBand",
    "fw_ver": "16.27.2008",
    "board_id": "MT_0000000008",
    "gids": [
        {"index": 0, "gid": "fe80:0000:0000:0000:08c0:eb03:0054:b372", "type": "IB/RoCE v1", "device": ""}
    ],
}
# By the form of show_gids: index 3 is RoCE v2 with 192.168.2.2.
ROCE = {
    **PORT,
    "link_layer": "Ethernet",
    "gids": [
        {"index": 2, "gid": "0000:0000:0000:0000:0000:ffff:c0a8:0202", "type": "IB/RoCE v1", "device": "gp0"},
        {"index": 3, "gid": "0000:0000:0000:0000:0000:ffff:c0a8:0202", "type": "RoCE v2", "device": "gp0"},
    ],
}
# Of docker info, the members that the rules look at; their names are those that Docker 28.2 prints.
DOCKER = {
    "ServerVersion": "28.2.2",
    "CgroupDriver": "systemd",
    "Runtimes": {"io.containerd.runc.v2": {}, "nvidia": {}, "runc": {}},
    "CDISpecDirs": ["/etc/cdi", "/var/run/cdi"],
}
HOOK = "/usr/bin/nvidia-container-runtime-hook"
INSIDE = """\
Limit                     Soft Limit           Hard Limit           Units     
Max locked memory         unlimited            unlimited            bytes     
Filesystem     1K-blocks  Used Available Use% Mounted on
tmpfs          134217728     0 134217728   0% /dev/shm
libibverbs:
/usr/lib/x86_64-linux-gnu/libibverbs.so.1.14.44.0
GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-00000000-1111-2222-3333-444444444444)
"""  # noqa: W291 - so it is printed
STARTED = {"image": "nvcr.io/nvidia/pytorch:24.12-py3", "status": 0, "out": INSIDE, "err": ""}


def recorded(name: str) -> str:
    """What the real host printed."""
    return (RECORDED / name).read_text()


def said(out: object, status: int | None = 0, **values: Any) -> Probe:
    """A probe that ended; what is no text is written as JSON."""
    return Probe(("look",), status, out if isinstance(out, str) else json.dumps(out), **values)


def healthy_probes() -> dict[str, Probe]:
    """Everything as it should be. The first five are recorded."""
    return {
        "gpu_query": said(recorded("nvidia-smi-q.txt")),
        "gpu_processes": said(recorded("compute-apps.csv")),
        "gpu_topology": said(recorded("topo-m.txt")),
        "gpu_module": said(recorded("proc_driver_nvidia_version.txt")),
        "gpu_pci": said(recorded("sys-pci.txt")),
        "gpu_nvlink": said(""),
        "gpu_module_installed": said("580.159.04\n"),
        "gpu_xid": said("", 1),
        "gpu_packages_deb": said("ii  libnvidia-cfg1 580.159.04-1\nhi  nvidia-open 580.159.04-1\n", 1),
        "gpu_fabric_manager": said("inactive\n", 3),
        "gpu_acs": said({"0000:00:01.0": 0}),
        "kernel_modules": said("nvidia_uvm 1 0 - Live 0x0\nnvidia 1 1 nvidia_uvm, Live 0x0 (OE)\n"),
        "kernel_command_line": said("BOOT_IMAGE=/vmlinuz root=/dev/vda1 ro quiet\n"),
        "kernel": said("Linux 6.1.0-41-amd64 #1 SMP PREEMPT_DYNAMIC Debian 6.1.158-1 x86_64\n"),
        "rdma_ports": said({"mlx5_0/1": PORT}),
        "rdma_peer_memory": said({"modules": ["nvidia_peermem"], "symbol": True}),
        "docker_info": said(DOCKER),
        "container_ways": said({"cdi": ["/var/run/cdi/nvidia.yaml"], "hook": HOOK}),
        "container_start": said(STARTED),
    }


def host(name: str = "gpu1", probes: Mapping[str, Probe] | None = None, **stated: Any) -> HostView:
    """A host as it should be, but for these probes and what the inventory states."""
    states = {"cards": 1, "card_model": MODEL, "driver": "580.159.04", "fabric": "infiniband", **stated}
    return HostView(name, {**healthy_probes(), **(probes or {})}, stated=Stated(**states))


def changed(name: str, old: str, new: str) -> dict[str, Probe]:
    """A probe of the healthy host with a piece of its text in another form."""
    probe = healthy_probes()[name]
    assert old in probe.out, f"{name}: lacks {old!r}"
    return {name: replace(probe, out=probe.out.replace(old, new))}


def value(path: str, old: str, new: str) -> dict[str, Probe]:
    """nvidia-smi -q with another value of one line, the first that has this name below its section."""
    section, _, key = path.rpartition("/")
    lines = healthy_probes()["gpu_query"].out.splitlines()
    start = next(at for at, line in enumerate(lines) if line.strip() == section) if section else 0
    at = next(at for at in range(start, len(lines)) if lines[at].partition(" : ")[0].strip() == key)
    assert lines[at].endswith(f": {old}"), lines[at]
    lines[at] = lines[at].removesuffix(old) + new
    return {"gpu_query": said("\n".join(lines) + "\n")}


@dataclass(frozen=True)
class Case:
    """Hosts of which one breaks one rule: the finding's host, a piece of its evidence and one of its detail.

    ``source`` says where what was changed comes from: "recorded" on real hardware, "measured" without such
    hardware, else the document that gives the form.
    """

    code: str
    hosts: Sequence[HostView]
    evidence: str
    detail: str
    source: str
    at: int = 0


def diagnosed(hosts: Sequence[HostView]) -> list[Finding]:
    """What the rules for cards, RDMA and containers find; those of the system have tests of their own."""
    return [finding for module in MODULES for finding in module.check(hosts)]


def found(case: Case) -> Finding:
    """The one finding of a case; it names the right host and shows what it goes by."""
    findings = diagnosed(case.hosts)
    assert [each.code for each in findings] == [case.code], findings
    (finding,) = findings
    assert finding.host == case.hosts[case.at].name
    assert case.evidence in finding.evidence
    assert case.detail in finding.detail
    assert "\n" not in finding.evidence + finding.detail
    return finding
