"""What role rdma says of the ports of a host: files as the kernel has them in /sys/class/infiniband."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from kit import ROOT

PORTS = ROOT / "roles" / "rdma" / "files" / "ports.py"
# What the kernel prints into state, phys_state and link_layer of a port.
UP = ("4: ACTIVE", "5: LinkUp")
NO_CABLE = ("1: DOWN", "2: Polling")
NO_MANAGER = ("2: INIT", "5: LinkUp")
OFF = ("1: DOWN", "3: Disabled")
IB, ETHERNET = "InfiniBand", "Ethernet"


def look(tree: Path, fabric: str) -> tuple[int, str, bool]:
    done = subprocess.run(
        [sys.executable, PORTS, tree, fabric], capture_output=True, text=True, check=True, timeout=30
    )
    said = json.loads(done.stdout)
    return said["ports"], said["wrong"], said["waiting"]


@pytest.mark.parametrize(
    ("fabric", "ports", "wrong", "waiting"),
    [
        pytest.param("infiniband", [(*UP, IB)], "", False, id="one that is up"),
        pytest.param("roce", [(*UP, ETHERNET)], "", False, id="RoCE"),
        pytest.param("infiniband", [(*NO_CABLE, IB), (*UP, IB)], "", False, id="one of two is enough"),
        pytest.param("infiniband", [(*NO_MANAGER, IB), (*UP, IB)], "", False, id="one has been set up"),
        pytest.param("infiniband", [(*NO_CABLE, IB)], "check cable", False, id="no cable"),
        pytest.param("infiniband", [(*OFF, IB)], "it is switched off", False, id="switched off"),
        pytest.param(
            "infiniband",
            [(*NO_CABLE, IB), (*NO_MANAGER, IB)],
            "no RDMA port is active: mlx5_1/1 is INIT, LinkUp: no subnet manager",
            True,
            id="no subnet manager, told before the port without a cable",
        ),
        pytest.param(
            "roce", [("1: DOWN", "?", ETHERNET)], "bring its network interface up", False, id="down"
        ),
        pytest.param(
            "infiniband",
            [(*UP, ETHERNET)],
            "infiniband, and no active port has link layer InfiniBand: mlx5_0/1 has Ethernet",
            False,
            id="another layer",
        ),
        pytest.param(
            "roce",
            [(*UP, IB), (*NO_CABLE, ETHERNET)],
            "no active port has link layer Ethernet",
            False,
            id="only IB",
        ),
    ],
)
def test_ports(
    tmp_path: Path, fabric: str, ports: list[tuple[str, str, str]], wrong: str, waiting: bool
) -> None:
    for number, values in enumerate(ports):
        folder = tmp_path / f"mlx5_{number}" / "ports" / "1"
        folder.mkdir(parents=True)
        for name, value in zip(("state", "phys_state", "link_layer"), values, strict=True):
            (folder / name).write_text(value + "\n")
    count, said, waits = look(tmp_path, fabric)
    assert (count, waits, bool(said)) == (len(ports), waiting, bool(wrong))
    assert wrong in said


def test_a_host_without_devices_has_no_ports(tmp_path: Path) -> None:
    assert look(tmp_path / "none", "roce") == (0, "", False)
