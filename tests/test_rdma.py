"""Role rdma: what it says of ports, files as in /sys/class/infiniband, and what it does on stand-in hosts.

These have GPUs and adapters that no test machine has; tests/provisioning/ says how.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml
from kit import ROOT
from plays import play, role
from provisioning.facts import described
from provisioning.rehearsal import rehearse
from provisioning.said import Facts, Said

PORTS = ROOT / "roles" / "rdma" / "files" / "ports.py"
# What the kernel prints into state, phys_state and link_layer of a port.
UP = ("4: ACTIVE", "5: LinkUp")
NO_CABLE = ("1: DOWN", "2: Polling")
NO_MANAGER = ("2: INIT", "5: LinkUp")
OFF = ("1: DOWN", "3: Disabled")
IB, ETHERNET = "InfiniBand", "Ethernet"


def port(number: int, *values: str) -> dict[str, str]:
    """The files of a port, below the tree of devices."""
    names = ("state", "phys_state", "link_layer")
    return {f"mlx5_{number}/ports/1/{name}": f"{value}\n" for name, value in zip(names, values, strict=True)}


def look(tree: Path, fabric: str, seconds: float = 0) -> tuple[int, str]:
    argv = [sys.executable, str(PORTS), str(tree), fabric, str(seconds)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)
    said = json.loads(done.stdout)
    return said["ports"], said["wrong"]


@pytest.mark.parametrize(
    ("fabric", "ports", "wrong"),
    [
        pytest.param("infiniband", [(*UP, IB)], "", id="one that is up"),
        pytest.param("roce", [(*UP, ETHERNET)], "", id="RoCE"),
        pytest.param("infiniband", [(*NO_CABLE, IB), (*UP, IB)], "", id="one of two is enough"),
        pytest.param("infiniband", [(*NO_MANAGER, IB), (*UP, IB)], "", id="one has been set up"),
        pytest.param("infiniband", [(*NO_CABLE, IB)], "check cable", id="no cable"),
        pytest.param("infiniband", [(*OFF, IB)], "it is switched off", id="switched off"),
        pytest.param(
            "infiniband",
            [(*NO_CABLE, IB), (*NO_MANAGER, IB)],
            "no RDMA port is active: mlx5_1/1 is INIT, LinkUp: no subnet manager",
            id="no subnet manager, told before the port without a cable",
        ),
        pytest.param("roce", [("1: DOWN", "?", ETHERNET)], "bring its network interface up", id="down"),
        pytest.param(
            "infiniband",
            [(*UP, ETHERNET)],
            "infiniband, and no active port has link layer InfiniBand: mlx5_0/1 has Ethernet",
            id="another layer",
        ),
        pytest.param(
            "roce",
            [(*UP, IB), (*NO_CABLE, ETHERNET)],
            "no active port has link layer Ethernet",
            id="only IB",
        ),
    ],
)
def test_ports(tmp_path: Path, fabric: str, ports: list[tuple[str, str, str]], wrong: str) -> None:
    for number, values in enumerate(ports):
        for path, text in port(number, *values).items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)
    count, said = look(tmp_path, fabric)
    assert (count, bool(said)) == (len(ports), bool(wrong))
    assert wrong in said


def test_a_host_without_devices_has_no_ports(tmp_path: Path) -> None:
    assert look(tmp_path / "none", "roce") == (0, "")


def test_a_subnet_manager_is_waited_for(tmp_path: Path) -> None:
    for path, text in port(0, *NO_MANAGER, IB).items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert "no subnet manager" in look(tmp_path, "infiniband", 0.2)[1]
    up = threading.Timer(0.5, lambda: (tmp_path / "mlx5_0/ports/1/state").write_text(f"{UP[0]}\n"))
    up.start()
    assert look(tmp_path, "infiniband", 50) == (1, "")
    up.join()


# --- the role, with --check --------------------------------------------------------------------

OFED = {"ofed_info -s": "MLNX_OFED_LINUX-24.10-3.2.5.0:"}
OPENSMD = {"/etc/init.d/opensmd": "#!/bin/sh\n", "/usr/sbin/opensm": ""}
WAITING = {
    f"/sys/class/infiniband/{path}": text
    for number in range(8)
    for path, text in port(number, *NO_MANAGER, IB).items()
}
LOADED = {"/sys/module/nvidia/version": "580.173.02"}
DOCA = {"rdma_stack": "doca", "vendor_sources_repositories": {"doca": {"fingerprints": ["A" * 40]}}}
HOSTS: dict[str, Facts] = {
    "debian12-v100x8": {"vars": {"rdma_subnet_manager": True}, "files": WAITING},
    "rocky9-v100x8": {
        "vars": {"rdma_subnet_manager": True},
        "files": OPENSMD,
        "commands": OFED,
        "units": {"opensmd": {"enabled": False, "active": False}},
    },
    "alma9-h100x8": {"vars": {"rdma_subnet_manager": True}, "commands": OFED},
    # Cards for the management beside those of the fabric, and a release that knows them not.
    "ubuntu2404-h100x8": {
        "vars": {**DOCA, "vendor_sources_doca_version": "3.2.3"},
        "pci": {"0x020000 0x15b3 0x1015": 1, "0x028000 0x15b3 0x1003": 1},
    },
    "debian12-h100x8": {"vars": DOCA, "pci": {"0x020000 0x15b3 0x1015": 1}},
    "ubuntu2204-v100x8": {"vars": {**DOCA, "vendor_sources_doca_version": "3.2.3"}},
    # DOCA came before, and the first of them was not rebooted since.
    "rocky9-v100x16-doca": {
        "files": {**LOADED, "/etc/yum.repos.d/runkit-doca.repo": "", "/run/runkit-doca": ""},
        "commands": OFED,
        "installed": {"doca-ofed": "1-1", "kernel-devel-5.14.0-611.5.1.el9_7.x86_64": "1-1"},
    },
    "ubuntu2204-v100x8-doca": {
        "files": {**LOADED, "/etc/apt/sources.list.d/runkit-doca.sources": ""},
        "commands": OFED,
        "installed": {"doca-ofed": "1-1", "linux-headers-5.15.0-161-generic": "1-1"},
    },
}


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Said]:
    """What the role does on these hosts; each of them is the one that jobs are launched from."""
    hosts = {}
    for name, more in HOSTS.items():
        facts = described()[name]
        variables = {**facts["vars"], **more.get("vars", {}), "ssh_trust_launch_host": name}
        own = {key: {**facts.get(key, {}), **value} for key, value in more.items() if key != "vars"}
        hosts[name] = {**facts, **own, "vars": variables}
    return rehearse(hosts, tmp_path_factory.mktemp("rdma"), "--tags", "rdma")


def would(told: Said) -> set[str]:
    return {each["task"].removeprefix("rdma : ") for each in told.changes}


def test_check_does_not_wait_for_a_subnet_manager_that_it_did_not_start(said: dict[str, Said]) -> None:
    assert said["debian12-v100x8"].failures == []
    assert {"opensm"} < set(said["debian12-v100x8"].packages)


def test_the_subnet_manager_of_an_ofed_is_its_own(said: dict[str, Said]) -> None:
    told = said["rocky9-v100x8"]
    assert told.failures == []
    assert told.packages == []
    (unit,) = [each["args"] for each in told.changes if each["action"] == "service"]
    assert (unit["name"], unit["enabled"], unit["state"]) == ("opensmd", True, "started")
    (why,) = said["alma9-h100x8"].failures
    assert "MLNX_OFED_LINUX-24.10-3.2.5.0 is there without opensm" in why


def test_doca_that_waits_for_a_reboot_still_does_in_the_next_call(said: dict[str, Said]) -> None:
    """Whether or not the call before got as far as to ask for the reboot."""
    waits, done = said["rocky9-v100x16-doca"], said["ubuntu2204-v100x8-doca"]
    assert waits.failures == done.failures == []
    asked = {"DOCA | Ask for a reboot", "DOCA | Say what for"}
    assert would(waits) & {*asked, "Peer memory | Load it"} == asked
    assert would(done) & {*asked, "Peer memory | Load it"} == {"Peer memory | Load it"}


def test_a_stated_release_of_doca_wins_over_adapters_beside_the_fabric(said: dict[str, Said]) -> None:
    for name, release, note in (
        ("ubuntu2404-h100x8", "3.2.3", "DOCA 3.2.3, as stated, knows no ConnectX-4 Lx"),
        ("debian12-h100x8", "2.9.4", "DOCA 2.9.4 is taken, the last that knows ConnectX-4 Lx"),
    ):
        assert said[name].failures == []
        assert [note in each for each in said[name].notes if "DOCA" in each] == [True]
        urls = [text for path, text in said[name].files.items() if "runkit-doca.sources" in path]
        assert [f"/doca/{release}/" in text for text in urls] == [True]


def test_a_stated_release_that_knows_no_adapter_of_the_fabric_is_refused(said: dict[str, Said]) -> None:
    (why,) = said["ubuntu2204-v100x8"].failures
    assert "DOCA 3.2.3 knows no ConnectX-4, and 2.9.4 is the last that does" in why


# --- peer memory ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("distribution", "source", "remedy"),
    [
        pytest.param("Ubuntu", "", "so that NVIDIA's is taken, whose module is built", id="ready-made"),
        pytest.param("Ubuntu", "vendor", "build it anew (dkms remove and dkms install", id="NVIDIA's"),
        pytest.param("Debian", "", "build it anew (dkms remove and dkms install", id="DKMS"),
    ],
)
def test_a_module_that_was_built_without_ofed(
    tmp_path: Path, distribution: str, source: str, remedy: str
) -> None:
    known: dict[str, Any] = {
        "ansible_facts": {"distribution": distribution},
        "gpu_driver_source": source,
        "gpu_hardware_container": True,  # so that nothing is loaded here
        "__rdma_peermem": True,
        "__rdma_needs_peermem": True,
        "__rdma_loaded": {"rc": 1, "stderr": "modprobe: Invalid argument"},
    }
    told = play(tmp_path, role("rdma", "peer_memory"), "--check", fails=True, **known)
    assert "nvidia-peermem does not load: modprobe: Invalid argument; " in " ".join(told.split())
    assert remedy in " ".join(told.split())


@pytest.mark.parametrize("stated", [True, False])
def test_peer_memory_is_loaded_in_the_call_that_loads_the_driver(tmp_path: Path, *, stated: bool) -> None:
    """By these tasks of role gpu_driver, which comes after rdma; modprobe is a stand-in."""
    text = (ROOT / "roles" / "gpu_driver" / "tasks" / "verify.yml").read_text()
    for path in ("/etc/", "/sys/"):
        text = text.replace(f": {path}", f": {tmp_path}{path}")
    tasks = [each for each in yaml.safe_load(text) if each["name"].startswith("Verify | Load ")]
    if stated:
        (tmp_path / "etc/modules-load.d").mkdir(parents=True)
        (tmp_path / "etc/modules-load.d/nvidia-peermem.conf").write_text("nvidia-peermem\n")
    (tmp_path / "modprobe").write_text(f"#!/bin/sh\necho $* >>{tmp_path}/modprobed\n")
    (tmp_path / "modprobe").chmod(0o755)
    for each in tasks:
        each["environment"] = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    known: dict[str, Any] = {
        "ansible_facts": {"kernel": "6.1.0"},
        "gpu_hardware_container": False,
        "__gpu_driver_kernel": "6.1.0",
        "__gpu_driver_state": {"loaded": "", "nouveau": False, "module": {"version": "580.173.02"}},
        "__gpu_driver_module": {"version": "580.173.02"},
    }
    play(tmp_path, tasks, **known)
    assert (tmp_path / "modprobed").read_text().split() == ["nvidia", *(["nvidia-peermem"] if stated else [])]
