"""When a reboot is due: the script of role host_reboot on trees of files as hosts have them.

The lines of /proc/driver/nvidia/version are those of real drivers; the paths in modules.dep those of packages
of Ubuntu, Debian and Enterprise Linux. What modinfo says of a module stands in the module's place.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parent.parent / "roles" / "host_reboot" / "files" / "due.py"
PROPRIETARY = (
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.173.02  Tue Jun 23 08:38:17 UTC 2026\n"
    "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n"
)
OPEN = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (dvs-builder@U22)\n"
    "GCC version:\n"
)
KERNEL = "6.1.0-44-amd64"


@pytest.fixture
def due(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("due", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "version", lambda path: Path(path).read_text())
    return module


def host(root: Path, files: dict[str, str], folders: tuple[str, ...] = ()) -> str:
    for name, text in {"proc/sys/kernel/osrelease": f"{KERNEL}\n", **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for name in folders:
        (root / name).mkdir(parents=True)
    return f"{root}/"


def installed(
    module: str = "updates/dkms/nvidia.ko", version: str = "580.173.02", kernel: str = KERNEL
) -> dict[str, str]:
    folder = f"lib/modules/{kernel}"
    beside = module.replace("nvidia.ko", "nvidia-uvm.ko").replace("current.ko", "current-drm.ko")
    lines = f"kernel/drivers/i2c/nvidia-gpu.ko:\n{beside}: {module}\n{module}: kernel/drivers/acpi/video.ko\n"
    return {f"{folder}/modules.dep": lines, f"{folder}/{module}": version}


LOADED = "proc/driver/nvidia/version"
CASES = {
    "no driver": ({}, (), []),
    "no driver, and nouveau": ({}, ("sys/module/nouveau",), []),
    "it runs": ({**installed(), LOADED: PROPRIETARY}, (), []),
    "the open one runs": ({**installed(version="580.95.05"), LOADED: OPEN}, (), []),
    "not loaded": (installed(), (), ["GPU driver 580.173.02 is installed and not loaded"]),
    "nouveau": (
        installed(),
        ("sys/module/nouveau",),
        ["nouveau is loaded in the place of GPU driver 580.173.02"],
    ),
    "it was updated": (
        {**installed(), LOADED: OPEN},
        (),
        ["GPU driver 580.95.05 is loaded, and 580.173.02 is installed"],
    ),
    "for another kernel": (
        {
            **installed(kernel="6.1.0-45-amd64"),
            f"lib/modules/{KERNEL}/modules.dep": "kernel/fs/nfs/nfs.ko:\n",
        },
        (),
        [f"the GPU driver is there for kernel 6.1.0-45-amd64, and {KERNEL} runs"],
    ),
    "for both kernels": ({**installed(), **installed(kernel="6.1.0-45-amd64"), LOADED: PROPRIETARY}, (), []),
}


@pytest.mark.parametrize("name", CASES)
def test_driver(due: ModuleType, tmp_path: Path, name: str) -> None:
    files, folders, reasons = CASES[name]
    assert due.driver(host(tmp_path, files, folders)) == reasons


@pytest.mark.parametrize(
    "module",
    [
        "updates/dkms/nvidia.ko",  # NVIDIA's packages on Debian and Ubuntu
        "updates/dkms/nvidia-current.ko",  # Debian's
        "updates/dkms/nvidia-current-open.ko",
        "updates/dkms/nvidia-tesla-535.ko.xz",
        "kernel/nvidia-580-server/nvidia.ko.zst",  # Ubuntu's signed ones
        "extra/nvidia.ko.xz",  # DKMS on Enterprise Linux
        "weak-updates/nvidia/nvidia.ko",
    ],
)
def test_the_module_is_found_whatever_it_is_called(due: ModuleType, tmp_path: Path, module: str) -> None:
    root = host(tmp_path, installed(module))
    assert due.driver(root) == ["GPU driver 580.173.02 is installed and not loaded"]


def test_packages_that_ask_for_it(due: ModuleType, tmp_path: Path) -> None:
    asks = tmp_path / "reboot-required"
    assert due.asked_for(str(asks)) == []
    asks.touch()
    assert due.asked_for(str(asks)) == [f"asked for by {asks}"]
    names = tmp_path / "reboot-required.pkgs"
    names.write_text("libc6\nlibssl3\nlibc6\nx\x1b[2J\n")
    assert due.asked_for(str(asks)) == ["asked for by libc6, libssl3, x?[2J"]
    names.write_text("".join(f"p{n}\n" for n in range(8)))
    assert due.asked_for(str(asks)) == ["asked for by p0, p1, p2, p3, p4, 3 more"]


@pytest.mark.parametrize(
    ("said", "reasons"),
    [
        (
            "Core libraries or services have been updated since boot-up:\n  * kernel\n  * glibc\n\n"
            "Reboot is required to fully utilize these updates.\nMore information: https://example.org\n",
            ["asked for by glibc, kernel"],
        ),
        (
            "No core libraries or services have been updated.\nReboot should not be necessary.\n",
            [],
        ),
        ("No such command: needs-restarting. Please use /usr/bin/dnf --help\n", []),
        ("", []),
    ],
)
def test_what_dnf_says(
    due: ModuleType, monkeypatch: pytest.MonkeyPatch, said: str, reasons: list[str]
) -> None:
    monkeypatch.setattr(due, "output", lambda *argv: said)
    assert due.needs_restarting() == reasons


def test_a_program_that_is_not_there_says_nothing(due: ModuleType) -> None:
    assert due.output("no-such-program-of-runkit") == ""
    assert due.output("uname", "-s") == "Linux\n"
