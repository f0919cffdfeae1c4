"""What role gpu_driver decides, from the cards, the system and what is on the host; and how it finds that.

Names of packages, branches and flavours are those of NVIDIA's driver installation guide and of distributions.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from kit import ROOT
from plays import environment, play, role

STATE = ROOT / "roles" / "gpu_driver" / "files" / "driver_state.py"
NOTHING: dict[str, Any] = {
    "packages": {}, "held": [], "module": {}, "elsewhere": [], "loaded": "", "nouveau": False,
    "blacklisted": False, "runfile": False, "ofed": False, "secure_boot": False, "log": "", "log_line": "",
}  # fmt: skip
SYSTEMS = {
    "debian12": ("Debian", "Debian", "12.15", "6.1.0-50-amd64"),
    "debian13": ("Debian", "Debian", "13.8", "6.12.117+deb13-amd64"),
    "ubuntu2204": ("Debian", "Ubuntu", "22.04", "5.15.0-151-generic"),
    "hwe2204": ("Debian", "Ubuntu", "22.04", "6.8.0-87-generic"),
    "ubuntu2404": ("Debian", "Ubuntu", "24.04", "6.8.0-87-generic"),
    "rocky9": ("RedHat", "Rocky", "9.6", "5.14.0-570.el9.x86_64"),
    "rhel10": ("RedHat", "RedHat", "10.0", "6.12.0-55.el10.x86_64"),
}
V100, A100, H100, B200, GH200 = "V100", "A100", "H100", "B200", "GH200"
CARDS = {  # name, architecture and default flavour, as role gpu_hardware has them
    V100: ("Tesla V100 SXM2 32GB", "volta", "proprietary"),
    A100: ("A100 SXM4 40GB", "ampere", "open"),
    H100: ("H100 SXM5 80GB", "hopper", "open"),
    B200: ("B200", "blackwell", "open"),
    GH200: ("GH200 120GB", "hopper", "open"),
}
VENDOR: dict[str, Any] = {"gpu_driver_source": "vendor"}
OWN: dict[str, Any] = {"gpu_driver_source": "distribution"}
DOCA: dict[str, Any] = {"cluster_fabric": "infiniband", "rdma_stack": "doca"}


def on(**state: Any) -> dict[str, Any]:
    """Variables of a host where this is found of a driver."""
    return {"__gpu_driver_look": {"stdout": json.dumps({**NOTHING, **state})}}


DEBIAN = dict.fromkeys(("nvidia-kernel-dkms", "libcuda1", "nvidia-smi", "libnvidia-ml1"), "535.261.03-1")
HEADERS = {"linux-headers-6.1.0-50-amd64": "6.1.176-1", "linux-headers-amd64": "6.1.176-1"}
U535 = "535.288.01-0ubuntu0.22.04.1"
U580 = "580.126.09-0ubuntu1"


EL_DRIVER = {
    "nvidia-driver-cuda": "580.126.20-1.el9",
    "kmod-nvidia-open-dkms": "580.126.20-1.el9",
    "kernel-headers": "5.14.0-611.el9",
}


def branch(number: str) -> dict[str, Any]:
    return {"gpu_driver_branch": number}


# The system, its card, what the inventory says; then what is decided, or a part of the sentence that refuses.
CASES: list[tuple[str, str, dict[str, Any], dict[str, Any] | str]] = [
    (
        "ubuntu2204",
        V100,
        {},
        {
            "packages": [
                "linux-modules-nvidia-580-server-generic",
                "nvidia-headless-no-dkms-580-server",
                "nvidia-utils-580-server",
            ],
            "pinning": [],
            "headers": [],
        },
    ),
    (
        "hwe2204",
        H100,
        {},
        {
            "packages": [
                "linux-modules-nvidia-580-server-open-generic-hwe-22.04",
                "nvidia-headless-no-dkms-580-server-open",
                "nvidia-utils-580-server",
            ]
        },
    ),
    (
        "ubuntu2404",
        A100,
        branch("535"),
        {
            "packages": [
                "linux-modules-nvidia-535-server-open-generic",
                "nvidia-headless-no-dkms-535-server-open",
                "nvidia-utils-535-server",
            ]
        },
    ),
    (
        "ubuntu2404",
        V100,
        VENDOR,
        {
            "pinning": ["nvidia-driver-pinning-580"],
            "packages": ["cuda-drivers"],
            "headers": ["linux-headers-6.8.0-87-generic", "linux-headers-generic"],
        },
    ),
    (
        "debian12",
        V100,
        {"cluster_driver": "580.173.02"},
        {
            "source": "vendor",
            "pinning": ["nvidia-driver-pinning-580.173.02"],
            "packages": ["cuda-drivers"],
            "headers": ["linux-headers-6.1.0-50-amd64", "linux-headers-amd64"],
        },
    ),
    ("debian12", V100, {"cluster_driver": "450.80.02"}, {"pinning": ["nvidia-driver-pinning-580"]}),
    (
        "debian12",
        H100,
        branch("620"),
        {"pinning": ["nvidia-driver-pinning-620"], "packages": ["nvidia-open"]},
    ),
    (
        "debian12",
        V100,
        OWN,
        {
            "branch": "535",
            "pinning": [],
            "packages": [
                "nvidia-kernel-dkms",
                "libcuda1",
                "nvidia-smi",
                "nvidia-persistenced",
            ],
        },
    ),
    ("debian13", V100, {}, {"source": "distribution", "branch": "550", "flavour": "proprietary"}),
    (
        "debian13",
        A100,
        {"cluster_driver": "550.163.01"},
        {
            "exact": "",
            "packages": [
                "nvidia-open-kernel-dkms",
                "libcuda1",
                "nvidia-smi",
                "nvidia-persistenced",
            ],
            "headers": ["linux-headers-6.12.117+deb13-amd64", "linux-headers-amd64"],
        },
    ),
    ("debian13", H100, {**VENDOR, **branch("620")}, {"packages": ["nvidia-open"]}),
    (
        "rocky9",
        V100,
        {"cluster_driver": "580.173.02"},
        {
            "stream": "580-dkms",
            "suffix": "-580.173.02",
            "packages": ["nvidia-driver-cuda", "kmod-nvidia-latest-dkms"],
            "lock": "580.173.02",
            "headers": [
                "kernel-devel-5.14.0-570.el9.x86_64",
                "kernel-devel-matched-5.14.0-570.el9.x86_64",
                "kernel-headers",
            ],
        },
    ),
    (
        "rocky9",
        H100,
        {},
        {
            "stream": "580-open",
            "suffix": "",
            "lock": "580.*",
            "packages": ["nvidia-driver-cuda", "kmod-nvidia-open-dkms"],
        },
    ),
    (
        "rhel10",
        A100,
        {},
        {
            "stream": "",
            "suffix": "-580.*",
            "packages": ["nvidia-driver-cuda", "kmod-nvidia-open-dkms"],
        },
    ),
    *(
        (
            system,
            V100,
            {**VENDOR, **branch(number)},
            f"driver {number} does not know Tesla V100 SXM2 32GB: 580 is the last",
        )
        for system in ("debian12", "ubuntu2404", "rocky9", "rhel10")
        for number in ("590", "595", "610", "620")
    ),
    ("debian12", B200, OWN, "driver 535 does not know B200: 570 is the first for blackwell"),
    ("debian13", B200, {}, "state such a one in gpu_driver_branch, and vendor in gpu_driver_source"),
    (
        "debian13",
        V100,
        {**VENDOR, **branch("580")},
        "NVIDIA's repository for Debian 13.8 has no driver 580, only 590 and later;",
    ),
    (
        "debian13",
        V100,
        VENDOR,
        "driver 620 does not know Tesla V100 SXM2 32GB: 580 is the last for volta; NVIDIA's repository for "
        "Debian 13.8 has none before 590; leave",
    ),
    ("debian13", H100, VENDOR, {"branch": "620", "packages": ["nvidia-open"]}),
    ("debian12", V100, {**OWN, **branch("580")}, "Debian 12.15 itself has driver 535, not 580; leave"),
    ("rocky9", V100, OWN, "Rocky 9.6 has no driver of its own; leave gpu_driver_source out"),
    (
        "debian12",
        V100,
        {"gpu_driver_flavour": "open"},
        "the open kernel module does not know volta (Tesla V100",
    ),
    (
        "debian12",
        B200,
        {"gpu_driver_flavour": "proprietary"},
        "the proprietary kernel module does not know blackwell",
    ),
    (
        "ubuntu2404",
        H100,
        {**VENDOR, **branch("620"), "gpu_driver_flavour": "proprietary"},
        "driver 620 has the open kernel module alone",
    ),
    (
        "debian12",
        V100,
        on(runfile=True),
        "installed by a .run file, and packages beside it break it; remove it with",
    ),
    (
        "ubuntu2204",
        V100,
        on(packages={"nvidia-utils-535": U535, "nvidia-persistenced": "1"}),
        f"another driver than 580 are installed: nvidia-utils-535 ({U535}); remove them with apt-get purge",
    ),
    (
        "rocky9",
        V100,
        on(packages={"nvidia-driver-cuda": "610.43.02-1.el9"}),
        "remove them with dnf remove, or state",
    ),
    (
        "debian12",
        V100,
        {**OWN, **on(packages={"nvidia-open-kernel-dkms": "535.261.03-1"})},
        "nvidia-open-kernel-dkms is installed, and Tesla V100 SXM2 32GB shall have the proprietary kernel",
    ),
    (
        "debian12",
        A100,
        {**OWN, **on(packages={"nvidia-kernel-dkms": "535.261.03-1"})},
        "shall have the open kernel mod",
    ),
    (
        "debian12",
        V100,
        on(secure_boot=True),
        "secure boot is on, and the kernel would not load a module that DKMS",
    ),
    ("debian12", V100, {**on(secure_boot=True), "gpu_driver_signed": True}, {"packages": ["cuda-drivers"]}),
    ("ubuntu2404", V100, on(secure_boot=True), {"source": "distribution"}),
    (
        "ubuntu2404",
        V100,
        {**VENDOR, **on(secure_boot=True)},
        "leave gpu_driver_source out, for Ubuntu has signed",
    ),
    # What is there already: held by its version, with what brings the next kernel.
    (
        "debian12",
        V100,
        {
            **OWN,
            **on(
                packages={
                    **DEBIAN,
                    **HEADERS,
                    "nvidia-persistenced": "535.171.04-1",
                    "nvidia-modprobe": "570.133.07-1",
                    "nvidia-container-toolkit": "1.20.0-1",
                    "libnvidia-container1": "1.20.0-1",
                }
            ),
        },
        {
            "due": False,
            "installed": "535.261.03",
            "hold": ["libcuda1", "libnvidia-ml1", "nvidia-kernel-dkms", "nvidia-persistenced", "nvidia-smi"],
        },
    ),
    (
        "ubuntu2404",
        V100,
        on(
            packages={
                "nvidia-headless-no-dkms-580-server": U580,
                "nvidia-utils-580-server": U580,
                "linux-modules-nvidia-580-server-generic": "6.8.0-87.88+1",
                "linux-image-generic": "6.8.0-87.88",
            },
            module={"version": "580.126.09", "license": "NVIDIA"},
            elsewhere=["6.8.0-85-generic"],
        ),
        {
            "due": False,
            "awaits_reboot": False,
            "installed": "580.126.09",
            "hold": [
                "linux-image-generic",
                "linux-modules-nvidia-580-server-generic",
                "nvidia-headless-no-dkms-580-server",
                "nvidia-utils-580-server",
            ],
        },
    ),
    (
        "debian12",
        V100,
        {
            "cluster_driver": "580.173.02",
            **on(
                packages={
                    "cuda-drivers": "580.126.20-1",
                    "nvidia-driver-pinning-580.173.02": "580-1",
                    **HEADERS,
                }
            ),
        },
        {"due": True, "installed": "580.126.20", "missing": []},
    ),
    (
        "rocky9",
        H100,
        on(
            packages={
                **EL_DRIVER,
                "kernel-devel-5.14.0-570.el9.x86_64": "5.14.0-570.el9",
                "kernel-devel-matched-5.14.0-570.el9.x86_64": "5.14.0-570.el9",
                "nvidia-driver-cuda-580.126.20-1.el9.x86_64": "580.126.20-1.el9",
            }
        ),
        {"due": False, "installed": "580.126.20", "lock": "580.126.20"},
    ),
    # The kernel was upgraded and the old one still runs. Of kernel-devel-matched only the newest stays.
    (
        "rocky9",
        H100,
        on(
            packages={
                **EL_DRIVER,
                "kernel-devel-5.14.0-570.el9.x86_64": "5.14.0-570.el9",
                "kernel-devel-5.14.0-611.el9.x86_64": "5.14.0-611.el9",
                "kernel-devel-matched": "5.14.0-611.el9",
                "kernel-devel-matched-5.14.0-611.el9.x86_64": "5.14.0-611.el9",
            }
        ),
        {"due": False, "missing": []},
    ),
    # Another version of the branch is stated than is there: it is locked before it is installed.
    (
        "rocky9",
        H100,
        {"cluster_driver": "580.173.02", **on(packages=EL_DRIVER)},
        {"due": True, "differs": True, "installed": "580.126.20", "lock": "580.173.02"},
    ),
    # Whichever packages bring the host its kernels are held, and no kernel by itself.
    (
        "hwe2204",
        V100,
        on(
            packages={
                "linux-image-virtual-hwe-22.04": "6.8.0.87.92",
                "linux-headers-virtual-hwe-22.04": "6.8.0.87.92",
                "linux-image-lowlatency": "5.15.0.151.136",
                "linux-image-6.8.0-87-generic": "6.8.0-87.88",
                "linux-image-unsigned-6.8.0-86-generic": "6.8.0-86.87",
                "linux-headers-6.8.0-87-generic": "6.8.0-87.88",
                "linux-modules-extra-6.8.0-87-generic": "6.8.0-87.88",
            }
        ),
        {
            "hold": [
                "linux-headers-virtual-hwe-22.04",
                "linux-image-lowlatency",
                "linux-image-virtual-hwe-22.04",
            ]
        },
    ),
    # The archive's modules are for a newer kernel than the one that runs: a reboot brings both together.
    ("ubuntu2404", V100, on(elsewhere=["6.8.0-88-generic"]), {"awaits_reboot": True}),
    ("ubuntu2404", V100, {}, {"awaits_reboot": False}),
    (
        "ubuntu2404",
        V100,
        {"gpu_driver_kernel": "6.8.0-86-generic", **on(elsewhere=["6.8.0-88-generic"])},
        {"awaits_reboot": False},
    ),
    # Ubuntu's ready-made module is built without OFED, which nvidia-peermem of the proprietary one needs.
    ("ubuntu2204", V100, DOCA, {"source": "vendor", "packages": ["cuda-drivers"]}),
    ("ubuntu2204", V100, {**DOCA, "cluster_fabric": "ethernet"}, {"source": "distribution"}),
    ("ubuntu2404", H100, DOCA, {"source": "distribution"}),
    ("ubuntu2404", H100, {**DOCA, "gpu_driver_flavour": "proprietary"}, {"source": "vendor"}),
    ("debian13", V100, DOCA, {"source": "distribution"}),
    ("ubuntu2204", V100, {"cluster_fabric": "roce", **on(ofed=True)}, {"source": "vendor"}),
    ("ubuntu2204", V100, on(ofed=True), {"source": "distribution"}),
    (
        "ubuntu2204",
        V100,
        {**DOCA, **OWN},
        "Ubuntu 22.04's own modules are built without OFED, so nvidia-peermem would not load beside DOCA;",
    ),
    (
        "ubuntu2204",
        V100,
        {**DOCA, **OWN, **on(ofed=True)},
        "would not load beside the OFED that is there; leave",
    ),
    (
        "ubuntu2204",
        V100,
        {**DOCA, **on(packages={"nvidia-utils-580-server": U580})},
        "with apt-get purge; Ubuntu's modules are built without OFED, so NVIDIA's are taken",
    ),
    # The same branch in another packaging. NVIDIA's own 580 has names with a branch, too.
    *(
        (
            "ubuntu2204",
            V100,
            {**VENDOR, **on(packages={**dict.fromkeys(names, version), "cuda-drivers": "580.126.20-1"})},
            wanted,
        )
        for names, version, wanted in (
            (
                ("nvidia-utils-580-server",),
                U580,
                "another packaging than that of cuda-drivers, and the two",
            ),
            (
                ("nvidia-driver-580",),
                "580.126.09-0ubuntu0.22.04.1",
                "nvidia-driver-580 (580.126.09-0ubuntu0.22",
            ),
            (("nvidia-driver-580", "nvidia-driver-pinning-580"), "580.126.20-1ubuntu1", {"otherwise": []}),
        )
    ),
    (
        "ubuntu2404",
        H100,
        on(packages=dict.fromkeys(("nvidia-kernel-common-580", "nvidia-driver-580-open"), U580)),
        f"nvidia-driver-580-open, nvidia-kernel-common-580 ({U580}); remove them with apt-get purge",
    ),
    (
        "ubuntu2404",
        V100,
        on(packages={"cuda-drivers": "580.126.20-1ubuntu1", "nvidia-driver": "580.126.20-1ubuntu1"}),
        "(580.126.20-1ubuntu1); remove them with apt-get purge, or state gpu_driver_source: vendor",
    ),
    (
        "ubuntu2404",
        V100,
        on(
            packages={
                **dict.fromkeys(
                    ("nvidia-fabricmanager-580", "libnvidia-nscq-580", "libnvidia-cfg1-580-server"), U580
                ),
                "nvidia-firmware-580-server-580.126.09": U580,
            }
        ),
        {"otherwise": []},
    ),
    (
        "ubuntu2404",
        GH200,
        {"gpu_driver_flavour": "proprietary"},
        "the proprietary kernel module does not know GH200 120GB; leave gpu_driver_flavour out, and the",
    ),
    (
        "debian12",
        V100,
        on(secure_boot=True),
        "make its key (dkms generate_mok, or openssl as docs/provisioning.md has it), enrol the key "
        "(mokutil --import /var/lib/dkms/mok.pub, reboot, confirm at the console) and state",
    ),
    (
        "ubuntu2204",
        V100,
        {**DOCA, **on(secure_boot=True)},
        "mokutil --import /var/lib/shim-signed/mok/MOK.der",
    ),
    # What DKMS made for another kernel is no excuse for what it did not make for this one.
    ("debian12", V100, on(elsewhere=["6.1.0-49-amd64"]), {"awaits_reboot": False}),
]


def variables(system: str, card: str, more: dict[str, Any]) -> dict[str, Any]:
    """Of one case: the facts of its host, what role gpu_hardware says of its card, and the rest."""
    family, distribution, version, kernel = SYSTEMS[system]
    facts = {
        "os_family": family,
        "distribution": distribution,
        "distribution_version": version,
        "distribution_major_version": version.split(".")[0],
        "kernel": kernel,
    }
    name, architecture, flavour = CARDS[card]
    return {
        "ansible_facts": facts,
        "gpu_hardware_gpus": [{"name": name, "architecture": architecture}],
        "gpu_hardware_architectures": [architecture],
        "gpu_hardware_flavour": flavour,
        "gpu_hardware_container": False,
        "gpu_hardware_open_only": [name] if card == GH200 else [],
        "cluster_driver": "",
        **on(),
        **more,
    }


def decided(folder: Path) -> list[dict[str, Any]]:
    """What the role's variables say in each case; Ansible is called once, and changes nothing."""
    flavours = yaml.safe_load((ROOT / "roles" / "gpu_hardware" / "vars" / "main.yml").read_text())
    tasks: list[dict[str, Any]] = [
        {"ansible.builtin.import_role": {"name": "gpu_driver", "tasks_from": "decide"}, "when": False}
    ]
    for system, card, more, wanted in CASES:
        names = ["refusals", *(wanted if isinstance(wanted, dict) else ())]
        said = "{{ {" + ", ".join(f"'{name}': __gpu_driver_{name}" for name in names) + "} | to_json }}"
        known = {
            "gpu_hardware_flavours": flavours["gpu_hardware_flavours"],
            **variables(system, card, more),
        }
        tasks.append({"ansible.builtin.debug": {"msg": "told: " + said}, "vars": known})
    (folder / "play.yml").write_text(
        yaml.safe_dump([{"hosts": "localhost", "gather_facts": False, "tasks": tasks}])
    )
    argv = ["ansible-playbook", "-i", "localhost,", "-c", "local", str(folder / "play.yml")]
    done = subprocess.run(argv, env=environment(), cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.findall(r'^    "msg": (".*")$', done.stdout, re.MULTILINE)
    return [json.loads(json.loads(each).removeprefix("told: ")) for each in found]


def test_decisions(tmp_path: Path) -> None:
    """The packages, pins and holds, or the sentence that refuses."""
    found = decided(tmp_path)
    assert len(found) == len(CASES)
    for (system, card, more, wanted), told in zip(CASES, found, strict=True):
        case = f"{system}, {card}, {more}"
        why = " ".join(" ".join(told["refusals"][:1]).split())
        if isinstance(wanted, str):
            assert wanted in why, case
            continue
        assert why == "", case
        assert {key: told[key] for key in wanted} == wanted, case


# --- what is on a host ---------------------------------------------------------------------

LOADED = {  # as the two flavours print it
    "NVIDIA UNIX x86_64 Kernel Module  580.173.02  Tue Jun 23 08:38:17 UTC 2026": "580.173.02",
    "NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (dvs-builder)": "580.95.05",
}


def state(root: Path) -> dict[str, Any]:
    """What the program says of a host whose files are under ``root``."""
    argv = [sys.executable, str(STATE), "6.1.0-1-amd64", str(root)]
    told: dict[str, Any] = json.loads(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)
    return told


def put(root: Path, path: str, text: str | bytes) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text if isinstance(text, bytes) else text.encode())


def test_nothing_is_there(tmp_path: Path) -> None:
    assert state(tmp_path) == NOTHING


@pytest.mark.parametrize("line", LOADED)
def test_version_that_is_loaded(tmp_path: Path, line: str) -> None:
    put(tmp_path, "proc/driver/nvidia/version", f"NVRM version: {line}\nGCC version:  gcc version 12.2.0\n")
    assert state(tmp_path)["loaded"] == LOADED[line]


def test_an_ofed_is_seen(tmp_path: Path) -> None:
    put(tmp_path, "usr/bin/ofed_info", "")
    assert state(tmp_path) == {**NOTHING, "ofed": True}


@pytest.mark.parametrize(("driver", "told"), [("450.80.02", True), ("580.173.02", False), ("", False)])
def test_a_stated_version_of_another_branch_is_told_before_anything_is_done(
    tmp_path: Path, driver: str, *, told: bool
) -> None:
    known = {**variables("ubuntu2204", V100, {"cluster_driver": driver})}
    known["gpu_hardware_flavours"] = {"volta": ["proprietary"]}
    said = play(tmp_path, role("gpu_driver", "decide"), "--check", **known)
    assert (f"cluster_driver says {driver}, and a driver 580 would be installed" in said) == told


def test_what_is_in_the_way(tmp_path: Path) -> None:
    # The variable of the firmware has four bytes of attributes before its value.
    variable = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
    put(tmp_path, variable, b"\x06\0\0\0\0")
    assert state(tmp_path) == NOTHING
    put(tmp_path, variable, b"\x06\0\0\0\1")
    put(tmp_path, "proc/modules", "nouveau 2437120 0 - Live 0x0\nnvidiafb 1 0 - Live 0x0\n")
    put(tmp_path, "usr/bin/nvidia-uninstall", "")
    put(tmp_path, "etc/modprobe.d/a.conf", "# blacklist nouveau\nblacklist nouveau_extra_\n")
    put(tmp_path, "var/lib/dkms/nvidia/580.1/build/make.log", "a\nerror: b\n\n")
    told = state(tmp_path)
    assert (told["secure_boot"], told["nouveau"], told["runfile"], told["blacklisted"]) == (
        True,
        True,
        True,
        False,
    )
    assert told["log"].endswith("/var/lib/dkms/nvidia/580.1/build/make.log")
    assert told["log_line"] == "error: b"
    put(tmp_path, "usr/lib/modprobe.d/b.conf", "options x y=1\nblacklist nouveau\n")
    assert state(tmp_path)["blacklisted"]


def test_other_kernels_that_have_the_module(tmp_path: Path) -> None:
    """Lines of modules.dep as depmod writes them; a module is the driver's by its name."""
    for kernel, line in {
        "6.1.0-1-amd64": "updates/dkms/nvidia-current.ko: ",
        "6.1.0-2-amd64": "updates/dkms/nvidia-current.ko: kernel/drivers/video/fbdev.ko",
        "6.8.0-88-generic": "kernel/nvidia-580srv/nvidia.ko: ",
        "5.14.0-611.el9.x86_64": "extra/nvidia.ko.xz:",
        "6.1.0-3-amd64": "kernel/drivers/usb/typec/altmodes/typec_nvidia.ko:\nupdates/nvidia-uvm.ko: ",
        "6.1.0-4-amd64": "kernel/drivers/i2c/busses/i2c-nvidia-gpu.ko: updates/dkms/nvidia.ko",
    }.items():
        put(tmp_path, f"lib/modules/{kernel}/modules.dep", f"kernel/a.ko:\n{line}\n")
    assert state(tmp_path)["elsewhere"] == ["5.14.0-611.el9.x86_64", "6.1.0-2-amd64", "6.8.0-88-generic"]


@pytest.mark.parametrize("disk", ["initrd.img-6.1.0-1-amd64", "initramfs-6.1.0-1-amd64.img"])
def test_nouveau_is_not_kept_away_by_a_file_that_the_ram_disk_does_not_have(
    tmp_path: Path, disk: str
) -> None:
    """What a call leaves that was broken off before the RAM disk was made anew."""
    put(tmp_path, "etc/modprobe.d/runkit-nouveau.conf", "blacklist nouveau\n")
    put(tmp_path, f"boot/{disk}", "")
    for made, kept_away in ((1000, False), (3000, True)):
        os.utime(tmp_path / "etc/modprobe.d/runkit-nouveau.conf", (2000, 2000))
        os.utime(tmp_path / "boot" / disk, (made, made))
        assert state(tmp_path)["blacklisted"] is kept_away
    os.utime(tmp_path / "boot" / disk, (1000, 1000))
    put(tmp_path, "usr/lib/modprobe.d/nvidia.conf", "blacklist nouveau\n")
    os.utime(tmp_path / "usr/lib/modprobe.d/nvidia.conf", (500, 500))
    assert state(tmp_path)["blacklisted"]


def test_packages_of_which_state(tmp_path: Path) -> None:
    """Held counts as installed; what was left half-way, or only its settings, does not."""
    rows = {
        "nvidia-smi": "hold ok installed",
        "libcuda1": "install ok installed",
        "nvidia-kernel-dkms": "install ok half-configured",
        "nvidia-persistenced": "deinstall ok config-files",
        "bash": "install ok installed",
    }
    text = "".join(
        f"Package: {name}\nStatus: {status}\nArchitecture: all\nVersion: 535.261.03-1\n"
        f"Maintainer: m <m@m.example>\nDescription: d\n\n"
        for name, status in rows.items()
    )
    put(tmp_path, "var/lib/dpkg/status", text)
    told = state(tmp_path)
    assert told["packages"] == {"nvidia-smi": "535.261.03-1", "libcuda1": "535.261.03-1"}
    assert told["held"] == ["nvidia-smi"]
