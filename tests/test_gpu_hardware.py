"""Role gpu_hardware on stand-in PCI trees, its table against that of the PCI ID project.

A stand-in is a folder with the files that the kernel has of each device: vendor, device and class.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from kit import ROOT
from plays import environment

PCI_IDS = Path("/usr/share/misc/pci.ids")
NVIDIA, MELLANOX, INTEL = "10de", "15b3", "8086"
GPU, VGA, AUDIO, SWITCH, USB = "030200", "030000", "040300", "068000", "0c0330"
ETHERNET, INFINIBAND, MANAGEMENT = "020000", "020700", "088000"

Device = tuple[str, str, str]  # vendor, id, class
V100, A100, H100 = (NVIDIA, "1db5", GPU), (NVIDIA, "20b2", GPU), (NVIDIA, "2330", GPU)
B200, NEWER = (NVIDIA, "2901", GPU), (NVIDIA, "3f00", GPU)

# A device tree, what else the inventory says, and what is known then, or a part of the sentence that refuses.
HOSTS: dict[str, tuple[list[Device], dict[str, Any], dict[str, Any] | str]] = {
    "dgx1": (
        [V100] * 8 + [(MELLANOX, "1017", INFINIBAND)] * 4 + [(INTEL, "1521", ETHERNET)],
        {"cluster_cards": 8},
        {
            "architectures": ["volta"],
            "flavour": "proprietary",
            "nvswitches": 0,
            "adapters": ["ConnectX-5"] * 4,
        },
    ),
    "dgx2": (
        [(NVIDIA, "1db8", GPU)] * 16 + [(NVIDIA, "1ac2", SWITCH)] * 12,
        {"cluster_cards": 16},
        {"architectures": ["volta"], "flavour": "proprietary", "nvswitches": 12, "adapters": []},
    ),
    "hgx_h100": (
        [H100] * 8 + [(NVIDIA, "22a3", SWITCH)] * 4 + [(MELLANOX, "1021", INFINIBAND)],
        {"cluster_cards": 8},
        {"architectures": ["hopper"], "flavour": "open", "nvswitches": 4, "adapters": ["ConnectX-7"]},
    ),
    "workstation": (
        [(NVIDIA, "1e87", VGA), (NVIDIA, "10f8", AUDIO), (NVIDIA, "1ad8", USB), (NVIDIA, "0369", SWITCH)],
        {"cluster_cards": 1},
        {"architectures": ["turing"], "flavour": "open", "nvswitches": 0, "adapters": []},
    ),
    "volta_and_ampere": (
        [
            V100,
            A100,
            (MELLANOX, "a2d6", ETHERNET),
            (MELLANOX, "c2d3", MANAGEMENT),
            (MELLANOX, "1fff", ETHERNET),
        ],
        {"cluster_cards": 2},
        {
            "architectures": ["volta", "ampere"],
            "flavour": "proprietary",
            "nvswitches": 0,
            "adapters": ["BlueField-2 integrated ConnectX-6 Dx", ""],
        },
    ),
    "told": (
        [NEWER],
        {"cluster_cards": 1, "gpu_hardware_ids": {"3F00": "blackwell"}},
        {"architectures": ["blackwell"], "flavour": "open", "nvswitches": 0, "adapters": []},
    ),
    "none_stated": ([], {"cluster_cards": 8, "cluster_card_model": ""}, {}),
    "one_lost": ([V100] * 7, {"cluster_cards": 8}, "7 NVIDIA GPUs are on the PCI bus, cluster_cards says 8;"),
    "empty": ([], {"cluster_cards": 1}, "cluster_cards says 1; see with lspci -d 10de: whether"),
    "newer": ([V100, NEWER], {"cluster_cards": 2}, "the GPU 3f00 is newer than runkit, so the driver"),
    "older": ([(NVIDIA, "13c2", VGA)], {"cluster_cards": 1}, "the GPU 13c2 is older than Pascal, and"),
    "k80": ([(NVIDIA, "102d", GPU), NEWER], {"cluster_cards": 1}, "the GPU 102d is older than Pascal, and"),
    "gh200": (
        [(NVIDIA, "2342", GPU), H100],
        {"cluster_cards": 1},
        {"architectures": ["hopper"], "flavour": "open", "open_only": ["GH200 120GB"]},
    ),
    "mistold": (
        [NEWER],
        {"cluster_cards": 1, "gpu_hardware_ids": {"3f00": "rubin"}},
        "gpu_hardware_ids has rubin; an architecture is one of pascal, volta",
    ),
    "no_one_module": (
        [V100, B200],
        {"cluster_cards": 2},
        "Tesla V100 SXM2 32GB and B200 are on one host, and no kernel module serves both: volta, blackwell",
    ),
}  # fmt: skip


def tree(folder: Path, devices: list[Device]) -> Path:
    """A stand-in for /sys/bus/pci/devices."""
    folder.mkdir(parents=True)
    for number, (vendor, device, kind) in enumerate(devices):
        place = folder / f"0000:{number // 256:02x}:{number % 256 // 8:02x}.{number % 8}"
        place.mkdir()
        for name, text in (("vendor", vendor), ("device", device), ("class", kind)):
            (place / name).write_text(f"0x{text}\n")
    return folder


def known(
    folder: Path, hosts: dict[str, tuple[list[Device], dict[str, Any]]]
) -> tuple[dict[str, Any], dict[str, str]]:
    """What each host is known to have, as the play reads it afterwards, and why hosts were refused."""
    public = ["stated", "gpus", "architectures", "flavour", "nvswitches", "adapters", "open_only"]
    said = "{{ {" + ", ".join(f"'{name}': gpu_hardware_{name}" for name in public) + "} | to_json }}"
    file = f"{folder}/{{{{ inventory_hostname }}}}"
    refused = {"dest": f"{file}.txt", "content": "{{ ansible_failed_result.msg }}"}
    tasks = [
        {"ansible.builtin.setup": {"gather_subset": ["!all", "!min", "python"]}},
        {
            "block": [{"ansible.builtin.import_role": {"name": "gpu_hardware"}}],
            "rescue": [{"ansible.builtin.copy": refused}],
        },
        {"ansible.builtin.copy": {"dest": f"{file}.json", "content": said}},
    ]
    play = {"hosts": "all", "gather_facts": False, "tags": "one", "tasks": tasks}
    inventory = {
        name: {"gpu_hardware_pci": str(tree(folder / name, devices)), **variables}
        for name, (devices, variables) in hosts.items()
    }
    common = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "cluster_card_model": "stated",
    }
    (folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": inventory, "vars": common}}))
    (folder / "play.yml").write_text(yaml.safe_dump([play]))
    argv = ["ansible-playbook", "--tags", "one", "-i", str(folder / "hosts.yml"), str(folder / "play.yml")]
    done = subprocess.run(argv, env=environment(), cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return (
        {name: json.loads((folder / f"{name}.json").read_text()) for name in hosts},
        {path.stem: path.read_text() for path in folder.glob("*.txt")},
    )


def test_hosts(tmp_path: Path) -> None:
    """Found on the bus, or refused with the reason; all hosts in one call."""
    found, refused = known(tmp_path, {name: (devices, more) for name, (devices, more, _) in HOSTS.items()})
    assert set(refused) == {name for name, (_, _, wanted) in HOSTS.items() if isinstance(wanted, str)}
    for name, (devices, _, wanted) in HOSTS.items():
        if isinstance(wanted, str):
            assert wanted in refused[name]
            continue
        adapters = [each["name"] for each in found[name]["adapters"]]
        told = {**found[name], "adapters": adapters}
        assert {key: told[key] for key in wanted} == wanted, name
        assert len(told["gpus"]) == len([each for each in devices if each[2] in (GPU, VGA)]), name
    assert found["none_stated"]["stated"] is False
    assert found["dgx1"]["gpus"][7] == {
        "address": "0000:00:00.7", "id": "1db5", "name": "Tesla V100 SXM2 32GB", "chip": "GV100",
        "architecture": "volta",
    }  # fmt: skip


def pci_ids(vendor: str) -> dict[str, str]:
    """Id to name, of the devices of a vendor, as the PCI ID project has them."""
    block = re.search(rf"^{vendor}  .*\n((?:[\t#].*\n)*)", PCI_IDS.read_text(), re.MULTILINE)
    assert block is not None
    return dict(re.findall(r"^\t([0-9a-f]{4})  (.*)$", block[1], re.MULTILINE))


# What the letters of a chip mean, as the driver's README and the open modules call the architectures.
CHIP = re.compile(r"(GP|GV|TU|GA|AD|GH|GB)[12][0-9][0-9A-F]")
MEANS = {
    "GP": "pascal", "GV": "volta", "TU": "turing", "GA": "ampere",
    "AD": "ada", "GH": "hopper", "GB": "blackwell",
}  # fmt: skip
NO_GPU = re.compile(r"Audio|USB|UCSI|NVSwitch|Bridge")
# Chips of Pascal that never were sold, in a block that belongs to Maxwell.
ODD = {"1725", "172e", "172f"}


@pytest.mark.skipif(not PCI_IDS.exists(), reason=f"no {PCI_IDS}; Debian's package pci.ids has it")
def test_architecture_of_every_gpu_of_the_pci_id_project(tmp_path: Path) -> None:
    every = {
        number: MEANS[chip[1]]
        for number, name in pci_ids(NVIDIA).items()
        if (chip := CHIP.match(name)) and not NO_GPU.search(name) and number not in ODD
    }
    assert len(every) > 300
    devices = [(NVIDIA, number, GPU) for number in every]
    others = [
        (NVIDIA, number, GPU) for number, name in pci_ids(NVIDIA).items() if re.match(r"G[FKMT]\d", name)
    ]
    found, _ = known(
        tmp_path, {"every": (devices, {"cluster_cards": 1}), "older": (others, {"cluster_cards": 1})}
    )
    assert {each["id"]: each["architecture"] for each in found["every"]["gpus"]} == every
    assert len(others) > 300
    assert {each["architecture"] for each in found["older"]["gpus"]} == {""}


@pytest.mark.skipif(not PCI_IDS.exists(), reason=f"no {PCI_IDS}; Debian's package pci.ids has it")
def test_names_agree_with_the_pci_id_project() -> None:
    table = yaml.safe_load((ROOT / "roles" / "gpu_hardware" / "vars" / "main.yml").read_text())
    gpus, adapters = pci_ids(NVIDIA), pci_ids(MELLANOX)
    compared = 0
    for number, name in table["__gpu_hardware_models"].items():
        shown = re.search(r"\[(.*)\]", gpus.get(number, ""))
        if shown is None:  # newer than that package, or a model without a name there
            continue
        compared += 1
        assert name == shown[1] or name.startswith(f"{shown[1]} "), number
    assert compared > 30
    for number, name in table["__gpu_hardware_connectx"].items():
        assert re.search(rf"{re.escape(name)}(?![A-Za-z0-9])", adapters[number]), number
        if not name.endswith(("Lx", "Dx", "Ex", "Pro")):
            assert "/" in adapters[number] or not re.search(rf"{name} (Lx|Dx|Ex|Pro)", adapters[number]), (
                number
            )
    # Every adapter of ConnectX-4 and later is in the table.
    later = re.compile(r"\[ConnectX-[4-9][^]]*\](?! EN)|integrated ConnectX")
    physical = {
        number
        for number, name in adapters.items()
        if later.search(name) and not re.search("Flash|Bridge", name)
    }
    assert physical - set(table["__gpu_hardware_connectx"]) <= {"a2d9"}, physical


@pytest.mark.skipif(not PCI_IDS.exists(), reason=f"no {PCI_IDS}; Debian's package pci.ids has it")
def test_no_chipset_counts_as_an_nvswitch() -> None:
    first = yaml.safe_load((ROOT / "roles" / "gpu_hardware" / "vars" / "main.yml").read_text())[
        "__gpu_hardware_first_nvswitch"
    ]
    names = pci_ids(NVIDIA)
    # Those of Tegra are left out: they are of the class 0604.
    chipsets = {number for number, name in names.items() if re.match(r"nForce|MCP|C5[15]|CK804|NF200", name)}
    assert len(chipsets) > 200
    assert [number for number in chipsets if int(number, 16) >= first] == []
    assert [number for number, name in names.items() if "NVSwitch" in name and int(number, 16) < first] == []
