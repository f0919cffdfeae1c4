"""Which version the fabric manager must have: the script of its role, on libraries as packages call them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
from plays import play, role

SCRIPT = Path(__file__).resolve().parent.parent / "roles" / "fabric_manager" / "files" / "fabric.py"
spec = importlib.util.spec_from_file_location("fabric", SCRIPT)
assert spec is not None
assert spec.loader is not None
fabric = importlib.util.module_from_spec(spec)
spec.loader.exec_module(fabric)

LIB = "usr/lib/x86_64-linux-gnu"


@pytest.mark.parametrize(
    ("names", "version"),
    [
        ([], ""),
        ([f"{LIB}/libnvidia-ml.so.1", f"{LIB}/libnvidia-ml.so.580.95.05"], "580.95.05"),
        ([f"{LIB}/nvidia/current/libnvidia-ml.so.550.163.01"], "550.163.01"),  # Debian
        (["usr/lib64/libnvidia-ml.so.1", "usr/lib64/libnvidia-ml.so.580.173.02"], "580.173.02"),
        (["usr/lib/aarch64-linux-gnu/libnvidia-ml.so.580.95.05"], "580.95.05"),
        ([f"{LIB}/libnvidia-ml.so.580.95.05", f"{LIB}/libnvidia-ml.so.580.126.09"], "580.126.09"),
        ([f"{LIB}/libnvidia-ml.so", f"{LIB}/libnvidia-ml.so.1"], ""),  # a stub, or a link that leads nowhere
    ],
)
def test_the_driver_is_known_by_its_library(tmp_path: Path, names: list[str], version: str) -> None:
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert fabric.installed(f"{tmp_path}/") == version


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.173.02  Tue Jun 23 08:38:17 UTC 2026",
            "580.173.02",
        ),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build", "580.95.05"),
        ("580.95.05-0ubuntu0.24.04.1", "580.95.05"),
        ("580.95.05-1", "580.95.05"),
        ("", ""),
    ],
)
def test_versions(text: str, version: str) -> None:
    assert fabric.version(text) == version


def test_a_package_that_is_not_there_has_no_version() -> None:
    assert fabric.package("no-such-package-of-runkit") == ""


B200 = {"id": "2901", "name": "B200", "chip": "GB100"}
GB200 = {"id": "2941", "name": "GB200", "chip": "GB100"}
B300 = {"id": "31ff", "name": "GB110", "chip": "GB110"}  # of no model that has a name here
H100 = {"id": "2330", "name": "H100 SXM5 80GB", "chip": "GH100"}


@pytest.mark.parametrize(
    ("card", "loaded", "runs", "fails"),
    [
        (B200, "580.173.02", False, True),
        (B300, "580.173.02", False, True),
        (B200, "580.173.02", True, False),
        (B200, "", False, False),  # a reboot into the driver comes first
        (GB200, "580.173.02", False, False),
        (H100, "580.173.02", False, False),
    ],
)
def test_a_board_of_blackwell_is_not_ready_before_its_fabric_manager_runs(
    tmp_path: Path, card: dict[str, str], loaded: str, *, runs: bool, fails: bool
) -> None:
    known: dict[str, Any] = {
        "ansible_facts": {"python": {"executable": sys.executable}},
        "gpu_hardware_gpus": [card] * 8,
        "gpu_hardware_nvswitches": 0,
        "gpu_hardware_container": False,
        "gpu_driver_kind": "distribution_ubuntu",
        "gpu_driver_chosen": "580",
        "__gpu_driver_look": {},
        "__fabric_manager_found": {"program": runs, "runs": runs, "loaded": loaded},
        "__fabric_manager_driver": "580.173.02",
    }
    said = play(tmp_path, role("fabric_manager", "find"), fails=fails, **known)
    told = fails or loaded == ""
    assert (f"{card['name']} on a board with NVLink switches need a fabric manager" in said) == told
    assert ("without which CUDA fails (802)" in said) == told


def test_no_unit_runs_that_is_not_there() -> None:
    assert fabric.runs("no-such-unit-of-runkit") is False
