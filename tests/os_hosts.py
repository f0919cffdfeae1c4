"""Hosts without a fault, as the probe describes them, for tests to break one thing of.

What programs and files say is recorded on a Debian 12 machine without GPU (limits, ip, os-release, meminfo,
stat), cut to what the rules read; systemctl and timedatectl are by their form under systemd 252, and what ssh
says when it fails is the text of OpenSSH 9.2: declared here as samples.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from runner import diagnosis
from runner.diagnosis.model import Finding, HostView, Probe, Stated

LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units
Max stack size            8388608              unlimited            bytes
Max open files            1048576              1048576              files
Max locked memory         unlimited            unlimited            bytes
Max address space         unlimited            unlimited            bytes
"""
OS_RELEASE = (
    'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nVERSION_ID="12"\nVERSION_CODENAME=bookworm\nID=debian\n'
)
KERNEL = "Linux 6.1.0-40-amd64 #1 SMP PREEMPT_DYNAMIC Debian 6.1.153-1 (2025-09-20) x86_64\n"
TIME_STATE = "Timezone=Etc/UTC\nLocalRTC=no\nCanNTP=yes\nNTP=yes\nNTPSynchronized=yes\n"
UNITS = "active\nactive\ninactive\ninactive\ninactive\ninactive\ninactive\n"
DISK = {"size": 270553174016, "free": 78455128064, "inodes": 16777216, "inodes_free": 16106174}
SPACE = {
    "data": {"path": "/data/runkit", "at": "/", **DISK},
    "runs": {"path": "/root/.local/state/runkit", "at": "/root", **DISK},
    "tmp": {"path": "/tmp", "at": "/tmp", **DISK},
    "shm": {"path": "/dev/shm", "at": "/dev/shm", "size": 12662634496, "free": 12662632448, "inodes": 3091463,
            "inodes_free": 3091420},
}  # fmt: skip
ROOT = {"path": "/root/.local/state/runkit", "at": "/root", "folder": True, "writable": True}
NAS = {"source": "nas:/data", "at": "/data", "type": "nfs4", "seconds": 3.0, "hangs": False, "error": ""}
RUNS = {"lock": "/root/.local/state/runkit/lock", "held": False, "run": "", "processes": []}
MPIRUN = {"path": "/usr/bin/orterun", "status": 0, "says": "mpirun (Open MPI) 4.1.4\n\nReport bugs to ..."}
MPI = {"stated": "mpirun", "path": "/usr/bin/mpirun", "daemon": "/usr/bin/orted",
       "versions": {"/usr/bin/mpirun": MPIRUN}}  # fmt: skip
PLACES = "/usr/bin/mpirun\n/usr/bin/orted\n"
PORTS = (29500, 46000)
NAMES = ("gpu1", "gpu2", "gpu3", "gpu4")


def address(name: str) -> str:
    return f"192.168.10.1{name[-1]}"


def interface(name: str, local: str, state: str = "UP", flag: str = "BROADCAST") -> dict[str, Any]:
    """As one entry of ``ip -json -4 address``."""
    inet = {"family": "inet", "local": local, "prefixlen": 24, "scope": "global", "label": name}
    return {"ifindex": 4, "ifname": name, "flags": [flag, "UP"], "operstate": state, "addr_info": [inet]}


def interfaces(name: str) -> list[dict[str, Any]]:
    return [interface("lo", "127.0.0.1", "UNKNOWN", "LOOPBACK"), interface("eth0", address(name))]


def pairs(name: str, others: Iterable[str]) -> dict[str, Any]:
    """All met, and all clocks agree."""
    door = {"open": True, "said": {}, "offset": 0.00002, "error": 0.0001}
    met = [other for other in others if other != name]
    return {
        "seconds": 0.2,
        "ports": {str(port): "" for port in PORTS},
        "heard": {str(port): met for port in PORTS},
        "reached": {other: {str(port): dict(door) for port in PORTS} for other in met},
    }


def host(name: str, **stated: Any) -> HostView:
    """One host of the four; ``stated`` alters what the inventory states of it."""
    others = [other for other in NAMES if other != name]
    session = {"status": 0, "out": LIMITS + PLACES, "err": "", "port": 22}
    found = {each: {"addresses": [address(each)], "error": "", "seconds": 0.001} for each in NAMES}
    probes = {
        **{"limits": said(LIMITS), "meminfo": said("MemTotal:       24731708 kB\n"), "kernel": said(KERNEL)},
        **{"os_release": said(OS_RELEASE), "service_limits": said("DefaultLimitMEMLOCK=infinity\n")},
        **{"container": said("none\n", 1), "time_units": said(UNITS, 3), "time_state": said(TIME_STATE)},
        **{
            "space": data(SPACE),
            "runs_root": data(ROOT),
            "mounts": data([NAS]),
            "runs": data(RUNS),
            "half_installed": data({"packages": [], "journal": 0}),
            "names": data(found),
            "mpi": data(MPI),
            "python_packages": said(""),
        },
        **{"interfaces": data(interfaces(name)), "pairs": data(pairs(name, NAMES))},
        "ssh": data(dict.fromkeys(others, session) if name == NAMES[0] else {}),
        "clock_offset": data({"least_s": -0.2, "most_s": 0.4}),
    }
    usual = Stated(8, "", "", "", "eth0", "192.168.10.0/24", address(name))
    return HostView(name, probes, None, replace(usual, **stated))


def cluster(**stated: Any) -> list[HostView]:
    return [host(name, **stated) for name in NAMES]


def said(out: str, status: int | None = 0, err: str = "") -> Probe:
    return Probe(("recorded",), status, out, err, 0.01, None)


def data(value: object) -> Probe:
    return said(json.dumps(value))


def altered(view: HostView, **probes: Probe) -> HostView:
    return replace(view, probes={**view.probes, **probes})


def broken(hosts: Sequence[HostView], name: str, **probes: Probe) -> list[HostView]:
    """The same hosts, and of the one named some probes said something else."""
    return [altered(view, **probes) if view.name == name else view for view in hosts]


def found(hosts: Sequence[HostView], *codes: str) -> list[Finding]:
    """The findings of these codes; every rule looks."""
    return [each for each in diagnosis.diagnose(hosts) if each.code in codes]


# --- this machine as several hosts ---------------------------------------------------------


def local(name: str) -> str:
    """An address of loopback for each."""
    return f"127.0.0.1{name[-1]}"


def request_of(name: str, others: Sequence[str], ports: Sequence[int], **moved: str) -> dict[str, Any]:
    """What the probe is asked there; ``moved`` has other addresses of peers."""
    peers = [
        {"name": each, "address": moved.get(each, local(each)), "port": 22} for each in others if each != name
    ]
    return {"name": name, "address": local(name), "peers": peers, "mpi_ports": ports, "only": ["pairs"]}
