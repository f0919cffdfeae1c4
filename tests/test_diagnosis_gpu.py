"""Cards, their driver and their links: each rule finds its fault in a host that is broken in that one way.

The host is a real one with an H100, recorded; where its output has no such state, ``source`` of the case says
which document gives the form. No V100, no NVSwitch and no host of several cards was at hand.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from gpu_hosts import (
    MODEL,
    SWITCH,
    Case,
    changed,
    diagnosed,
    found,
    healthy_probes,
    host,
    recorded,
    said,
    value,
)

from runner.diagnosis import rules_driver, rules_gpu, rules_links, smi, views
from runner.diagnosis.model import LONG, MOST, HostView, Probe

V100 = "0000:15:00.0 0x030200 0x1db5\n"  # Tesla V100-SXM2-32GB (NVIDIA/open-gpu-kernel-modules issue 322)
B200 = "0000:17:00.0 0x030200 0x2901\n"
CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  Tue Jun 23 08:38:17 UTC 2026\n"
MISSING = Probe(("look",), why="missing")
HANGS = Probe(("nvidia-smi", "-q"), seconds=18.004, why="timeout")
REAL = "recorded on real hardware"
KERNEL = "the kernel's documents"
MANUAL = "NVIDIA's manual of nvidia-smi"
GUIDE = "NVIDIA's driver installation guide"
CATALOG = "NVIDIA's catalog of Xid errors"
BAD = (
    *("46, GPU stopped processing", "61, Internal micro-controller breakpoint", "95, Uncontained: FBHUB"),
    *("94, Contained: SM (0x1)", "140, Unrecovered ECC Error", "143, GPU Initialization Failure"),
    *("149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 08", "171, Uncorrectable DRAM error"),
    "154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)",
)
GOOD = (
    *("31, MMU Fault", "43, Ch 00000010", "45, Preemptive Channel Removal", "9" * 5000),
    *("149, NETIR_LINK_EVT  Nonfatal   XC0 i0 Link 08", "154"),
    "154, GPU recovery action changed from 0x2 (Node Reboot Required) to 0x0 (None)",
)
PLAIN = "NVRM: Xid (PCI:0000:3b:00): {}\n"
# A host that sees the slot, and a card that uses half its lanes.
HALF = (
    "Host Max                               : N/A\n"
    "            Link Width\n"
    "                Max                                    : 16x\n"
    "                Current                                : 16x\n",
    "Host Max                               : 5\n"
    "            Link Width\n"
    "                Max                                    : 16x\n"
    "                Current                                : 8x\n",
)
XID = "NVRM: Xid (PCI:0000:00:06): {}, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"


def one(
    code: str, probes: Mapping[str, Probe], evidence: str, detail: str, source: str, **stated: object
) -> Case:
    return Case(code, [host(probes=probes, **stated)], evidence, detail, source)


def row(key: str, old: str, new: str) -> dict[str, Probe]:
    return value(f"Remapped Rows/{key}", old, new)


def page(key: str, old: str, new: str) -> dict[str, Probe]:
    return value(f"Retired Pages/{key}", old, new)


def clock(key: str, old: str, new: str) -> dict[str, Probe]:
    return value(f"Clocks Event Reasons/{key}", old, new)


def not_asked(status: int, text: str) -> dict[str, Probe]:
    """Every call of nvidia-smi ends alike."""
    names = ("gpu_query", "gpu_processes", "gpu_topology", "gpu_nvlink")
    return {name: said(text, status) for name in names}


MISMATCH = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 535.161\n"
NOT_LOADED = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest "
    "NVIDIA driver is installed and running.\n"
)
FIELD = "reports from the field of nvidia-smi's status and text"

DRIVER = (
    one(
        "driver_not_loaded",
        {**not_asked(9, NOT_LOADED), "gpu_module": MISSING},
        "exit status 9", "module 580.159.04 is installed, and not loaded", FIELD,
    ),
    one(
        "driver_not_loaded",
        dict.fromkeys(("gpu_query", "gpu_processes", "gpu_topology", "gpu_nvlink", "gpu_module"), MISSING)
        | {"gpu_module_installed": said("", 1), "gpu_packages_deb": MISSING},
        "/proc/driver/nvidia/version", "no module is installed", "measured",
    ),
    one(
        "driver_not_loaded", {**not_asked(9, NOT_LOADED), "gpu_module": Probe(("read",), why="timeout")},
        "exit status 9", "not loaded", FIELD,
    ),
    one(
        "nouveau_loaded",
        {"kernel_modules": said("nouveau 2334720 0 - Live 0x0\n"), "gpu_query": Probe(why="timeout")},
        "nouveau 2334720", "cannot take the cards", "measured",
    ),
    one("nvidia_smi_missing", {"gpu_query": MISSING}, "580.159.04", "nothing can be asked", "measured"),
    one(
        "driver_library_mismatch",
        {**not_asked(18, MISMATCH), "gpu_module_installed": said("535.161.07\n")},
        "exit status 18", "module 580.159.04 is loaded, libraries 535.161", FIELD,
    ),
    one(
        "driver_module_stale", not_asked(18, MISMATCH),
        "exit status 18", "module 580.159.04 is loaded and installed, libraries 535.161", FIELD,
    ),
    one("driver_no_access", not_asked(9, NOT_LOADED), "exit status 9", "/dev/nvidiactl", FIELD),
    one("driver_library_missing", not_asked(12, "NVIDIA-SMI couldn't find libnvidia-ml.so library\n"),
        "exit status 12", "libnvidia-ml is missing", FIELD),
    one("driver_hangs", dict.fromkeys(smi.LOOKS, HANGS), "nvidia-smi -q (ended after 18 s)", "no call",
        FIELD),
    one(
        "driver_update_pending", {"gpu_module_installed": said("580.173.02\n")},
        "580.159.04", "580.159.04 is loaded, 580.173.02 is installed", "measured",
    ),
    one("driver_error", not_asked(15, "Unable to determine the handle\n"), "15", "a card is lost", FIELD),
    one(
        "gpu_inforom_damaged", {"gpu_query": said(recorded("nvidia-smi-q.txt"), 14)},
        "exit status 14", "nvidia-smi says so", FIELD,
    ),
    one(
        "driver_wrong_flavour", {"gpu_pci": said(V100)},
        "Open Kernel Module", "card 0000:15:00.0 (10de:1db5) is served by the proprietary module only", GUIDE,
    ),
    one(
        "driver_wrong_flavour", {"gpu_pci": said(B200), "gpu_module": said(CLOSED)},
        "NVIDIA UNIX x86_64 Kernel Module", "served by the open module only", GUIDE,
    ),
    one(
        "driver_too_new",
        {"gpu_pci": said(V100), "gpu_module": said(CLOSED.replace("580.159.04", "595.71.05")),
         "gpu_module_installed": said("595.71.05\n")},
        "595.71.05", "card 0000:15:00.0 (10de:1db5) is served up to branch 580", GUIDE, driver="595",
    ),
    one(
        "driver_not_pinned", {"gpu_packages_deb": said("ii  nvidia-open 580.159.04-1\n", 1)},
        "nvidia-open 580.159.04-1", "an upgrade", "measured",
    ),
    one(
        "driver_not_pinned",
        {"gpu_packages_deb": MISSING, "gpu_packages_rpm": said("kmod-nvidia-open-dkms 580.159.04\n")},
        "kmod-nvidia-open-dkms", "an upgrade", GUIDE,
    ),
    one("driver_not_as_stated", {}, "580.159.04", "cluster_driver says 535", REAL, driver="535"),
    Case(
        "driver_differs",
        [host("gpu1"), host("gpu2"), host("gpu3", {
            **changed("gpu_module", "580.159.04", "580.173.02"),
            "gpu_module_installed": said("580.173.02\n"),
        }, driver="")],
        "580.173.02", "580.173.02 here, 580.159.04 on the other hosts", REAL, 2,
    ),
)  # fmt: skip
BUSY = recorded("compute-apps.csv") + "4711, python, train.py, 514 MiB\n"
UNCORRECTED = "            DRAM Uncorrectable                         : 0\n        Aggregate\n"
VOLTA = """\
            Single Bit
                Device Memory                          : 5
                Total                                  : 5
            Double Bit
                Device Memory                          : 3
                Register File                          : 0
                Total                                  : 3
        Aggregate
"""
MIG_OFF = (
    "        Current                                        : Disabled\n"
    "        Pending                                        : Disabled\n"
)
NONE = {"gpu_query": said("No devices were found\n", 6), "gpu_topology": said("", 6)}
CARDS = (
    one("gpu_count", NONE, "No devices were found", "lists 0 cards", REAL),
    one("gpu_count", {"container_start": MISSING}, "Attached GPUs", "1 cards, the inventory states 8", REAL,
        cards=8),
    one("gpu_count_more", {}, "Attached GPUs", "states 0", REAL, cards=0),
    one("gpu_model", {}, MODEL, "says Tesla V100-SXM2-32GB", REAL, card_model="Tesla V100-SXM2-32GB"),
    one("gpu_model", {}, MODEL, "says NVIDIA H100", REAL, card_model="NVIDIA H100"),
    one("gpu_ecc_errors", value("Volatile/DRAM Uncorrectable", "0", "2"), "DRAM Uncorrectable : 2", "", REAL),
    *(one("gpu_ecc_errors", value(f"Volatile/{key}", "0", "1"), f"{key} : 1", "", REAL)
      for key in ("SRAM Uncorrectable Parity", "SRAM Uncorrectable SEC-DED")),
    one("gpu_ecc_errors", changed("gpu_query", UNCORRECTED, VOLTA),
        "Volatile, Double Bit, Device Memory : 3 (and 1 more)", "", MANUAL),
    one("gpu_retired_pages", page("Single Bit ECC", "N/A", "62"), ": 62", "", REAL),
    one("gpu_retired_pages", page("Single Bit ECC", "N/A", "9" * 5000), ": 999", "", "hostile"),
    one("gpu_retired_pages", page("Pending Page Blacklist", "N/A", "Yes"), "Yes", "", REAL),
    one("gpu_remapped_rows", row("Pending", "No", "Yes"), "Pending : Yes", "", REAL),
    one("gpu_remapped_rows", row("Remapping Failure Occurred", "No", "Yes"), "Yes", "", REAL),
    one("gpu_xid", {"gpu_xid": said(XID.format(79))}, "Xid (PCI:0000:00:06): 79", "Xid 79", CATALOG),
    *(one("gpu_xid", {"gpu_xid": said(XID.format(13) + PLAIN.format(text))},
        text, f"Xid {text.partition(',')[0]}", CATALOG)
      for text in BAD),
    *(one("gpu_needs_reset", value(path, old, text), text, "", "texts of NVML's errors")
      for path, old in (("MIG Mode/Current", "Disabled"), ("Compute Mode", "Default"),
                        ("Persistence Mode", "Enabled"), ("Product Name", MODEL))
      for text in ("Unknown Error", "GPU is lost", "[GPU requires reset]", "ERR!")),
    *(one("gpu_needs_reset", value("GPU Recovery Action", "None", text), f"Action : {text}", "", MANUAL)
      for text in ("Reset", "Reboot", "Drain P2P", "Drain and Reset")),
    one("gpu_memory_worn", value("Unrepairable Memory", "No", "Yes"), "Memory : Yes", "", REAL),
    one("gpu_memory_worn", value("SRAM Threshold Exceeded", "No", "Yes"), "Exceeded : Yes", "", REAL),
    *(one("gpu_repair_pending", value(f"{key} Repair Pending", "No", "Yes"), f"{key} Repair", "", REAL)
      for key in ("Channel", "TPC")),
    one("gpu_setting_pending", value("ECC Mode/Pending", "Enabled", "Disabled"), "Pending : Disabled", "",
        REAL),
    one("gpu_setting_pending", value("MIG Mode/Pending", "Disabled", "Enabled"), "Pending : Enabled", "",
        REAL),
    one("gpu_power_limit", value("Current Power Limit", "700.00 W", "300.00 W"), ": 300.00 W", "", REAL),
    one("gpu_pcie_width", value("Link Width/Current", "16x", "4x"), ": 4x", "", REAL),
    one("gpu_pcie_width", changed("gpu_query", *HALF), ": 8x", "", REAL),
    one("gpu_throttled", clock("HW Thermal Slowdown", "Not Active", "Active"),
        "HW Thermal Slowdown : Active", "too low", REAL),
    one("gpu_throttled", clock("SW Thermal Slowdown", "Not Active", "Active"),
        "SW Thermal Slowdown : Active", "too low", REAL),
    one("gpu_mig", changed("gpu_query", MIG_OFF, MIG_OFF.replace("Disabled", "Enabled")),
        "Current : Enabled", "", REAL),
    one("gpu_compute_mode", value("Compute Mode", "Default", "Exclusive_Process"),
        "Exclusive_Process", "", MANUAL),
    one("gpu_busy", {"gpu_processes": said(BUSY)},
        "4711", "python, train.py (process 4711, 514 MiB): left as they are", REAL),
    one("gpu_persistence_off", value("Persistence Mode", "Enabled", "Disabled"), "Disabled", "", REAL),
)  # fmt: skip
NVLINK = (
    f"GPU 0: {MODEL} (UUID: GPU-0)\n\t Link 0: 26.562 GB/s\n\t Link 1: <inactive>\n\t Link 2: <inactive>\n"
)
NO_LINK = "NVML: Unable to retrieve NVLink information as all links are inActive\n"
OLD_NO_LINK = "\t Link 0: <inactive>\n\t Link 1: <inactive>\n"
UP = "\t Link 0: 25.781 GB/s\n\t Link 1: 25.781 GB/s\n"
HALF_UP = "\t Link 0: 25.781 GB/s\n\t Link 1: <inactive>\n"


def nvlink(model: str, *links: str) -> dict[str, Probe]:
    """nvidia-smi nvlink -s of cards with such links."""
    blocks = (f"GPU {n}: {model} (UUID: GPU-{n})\n{text}" for n, text in enumerate(links))
    return {"gpu_nvlink": said("".join(blocks))}


SXID = "nvidia-nvswitch3: SXid (PCI:0000:c5:00.0): 20034, {}, Link 30 LTSSM Fault Up\n"
ON_SWITCH = {"gpu_pci": said(recorded("sys-pci.txt") + SWITCH)}
MANAGED = {**ON_SWITCH, "gpu_fabric_manager": said("active\n")}
FM = "hi  nvidia-fabricmanager 580.173.02-1\nhi  nvidia-open 580.159.04-1\n"
TWO = "\t\x1b[4mGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
PAIR = TWO + "GPU0\t X \t{0}\t0-15\t0\t\tN/A\nGPU1\t{0}\t X \t0-15\t0\t\tN/A\n"
IN_GROUP = recorded("sys-pci.txt").strip()
LINKS = (
    one("nvlink_inactive", {"gpu_nvlink": said(NVLINK)}, "GPU 0: Link 1: <inactive>", "2 links", MANUAL),
    one("nvlink_inactive", nvlink(MODEL, *[NO_LINK] * 8), "GPU 0: NVML: Unable", "no link", FIELD),
    one("nvlink_inactive", nvlink("NVIDIA A100-SXM4-80GB", *[OLD_NO_LINK] * 2), "GPU 0: Link 0", "4 links",
        MANUAL),
    one("nvlink_inactive", nvlink("Tesla V100-SXM2-16GB", UP, HALF_UP, HALF_UP, UP), "GPU 1: Link 1",
        "2 links", MANUAL),
    one("nvswitch_sxid", {"gpu_xid": said(SXID.format("Fatal"))}, "Link 30", "SXid 20034",
        "NVIDIA's fabric manager user guide"),
    *(one("fabric_unhealthy", value("Health/Summary", "N/A", text), text, "", MANUAL)
      for text in ("Unhealthy", "Limited Capacity")),
    Case(
        "gpu_topology_differs",
        [host(name, {"gpu_topology": said(PAIR.format(link))}) for name, link in
         (("gpu1", "SYS"), ("gpu2", "NV18"), ("gpu3", "NV18"))],
        "GPU0 X SYS", "the other hosts have GPU0 X NV18", "recorded, with a second card",
    ),
    one("fabric_manager_missing", ON_SWITCH, "0x22a3", "nvidia-fabricmanager is inactive", GUIDE),
    one("fabric_manager_version", {**MANAGED, "gpu_packages_deb": said(FM, 1)},
        "nvidia-fabricmanager 580.173.02-1", "the driver is 580.159.04", GUIDE),
    one("fabric_manager_needless", {"gpu_fabric_manager": said("failed\n", 3)},
        "failed", "no NVSwitch", "measured"),
    one("fabric_not_ready", value("Fabric/State", "N/A", "In Progress"), "In Progress", "", MANUAL),
    one("iommu_on", {"gpu_pci": said(IN_GROUP + " DMA-FQ\n")}, "DMA-FQ", "group of card", KERNEL),
    one("iommu_on", {"kernel_command_line": said("ro intel_iommu=on quiet\n")},
        "intel_iommu=on", "command line",
        KERNEL),
    one("acs_on", {"gpu_acs": said({"0000:00:01.0": 0x1D, "0000:00:02.0": 0})},
        "0000:00:01.0: ACS control 0x001d", "on 1 of 2 bridges", "the PCI Express specification"),
)  # fmt: skip
CASES = (*DRIVER, *CARDS, *LINKS)


@pytest.mark.parametrize("case", [pytest.param(case, id=f"{case.code}-{n}") for n, case in enumerate(CASES)])
def test_a_host_broken_in_one_way(case: Case) -> None:
    found(case)


def test_every_rule_has_a_case() -> None:
    rules = {rule.code for module in (rules_driver, rules_gpu, rules_links) for rule in module.RULES}
    assert {case.code for case in CASES} == rules
    assert all(case.source for case in CASES)


@pytest.mark.parametrize(
    "probes",
    [
        pytest.param({}, id="recorded"),
        pytest.param({**MANAGED, "gpu_packages_deb": said(FM.replace("73.02", "59.04"), 1)}, id="NVSwitch"),
        pytest.param({"gpu_pci": said(B200), "gpu_fabric_manager": said("active\n")}, id="Blackwell"),
        pytest.param(changed("gpu_pci", "0x2330", "0x2330 identity"), id="IOMMU that passes through"),
        pytest.param({"kernel_command_line": said("intel_iommu=on iommu=pt\n")}, id="iommu=pt"),
        pytest.param(value("Fabric/State", "N/A", "Completed"), id="fabric"),
        pytest.param(value("Volatile/DRAM Correctable", "0", "7"), id="errors that were corrected"),
        pytest.param(page("Single Bit ECC", "N/A", "61"), id="a few retired pages"),
        pytest.param(clock("SW Power Cap", "Not Active", "Active"), id="at its power limit"),
        pytest.param({"gpu_xid": said(XID.format(13))}, id="Xid of a program"),
        pytest.param({"gpu_pci": said(V100), "gpu_module": said(CLOSED)}, id="V100 and its module"),
        pytest.param({"gpu_packages_deb": MISSING}, id="driver of no package"),
        *(pytest.param({"gpu_xid": said(PLAIN.format(text))}, id=f"Xid {text[:12]}") for text in GOOD),
        pytest.param({"gpu_xid": said(SXID.format("Non-fatal"))}, id="SXid that is not fatal"),
        pytest.param(value("Compute Mode", "Default", "N/A"), id="no compute mode"),
        pytest.param(value("Persistence Mode", "Enabled", "N/A"), id="no persistence mode"),
        pytest.param(value("MIG Mode/Current", "Disabled", "N/A"), id="no MIG"),
        pytest.param(value("GPU Recovery Action", "None", "N/A"), id="no recovery action"),
        pytest.param(value("Health/Summary", "N/A", "Healthy"), id="healthy fabric"),
        pytest.param(value("Fabric/State", "N/A", "Not Supported"), id="no fabric"),
        pytest.param(value("Current Power Limit", "700.00 W", "650.00 W"), id="a little less power"),
        pytest.param(value("PCIe Generation/Current", "5", "1"), id="a link that idles"),
        pytest.param(value("Link Width/Current", "16x", "8x"), id="half the lanes in a virtual machine"),
        pytest.param(nvlink("NVIDIA A100-PCIE-40GB", *[OLD_NO_LINK] * 2), id="no bridges"),
        pytest.param(nvlink("NVIDIA H100 NVL", *[NO_LINK] * 2), id="no bridges, as newer drivers say it"),
        pytest.param(nvlink("NVIDIA A30", UP, UP, OLD_NO_LINK, OLD_NO_LINK), id="a bridge on two of four"),
        pytest.param(nvlink("Tesla V100-SXM2-16GB", *[HALF_UP] * 4), id="half of a board"),
        pytest.param(nvlink(MODEL, NO_LINK), id="one card of a board"),
    ],
)
def test_a_healthy_host_has_no_finding(probes: Mapping[str, Probe]) -> None:
    assert diagnosed([host("gpu1", probes), host("gpu2", probes)]) == []


@pytest.mark.parametrize(
    ("locks", "packages"),
    [
        (
            "==> /etc/apt/preferences.d/x <==\nPackage: nvidia-*\nPin: version 580.*\nPin-Priority: 1001\n",
            "",
        ),
        ("nvidia-driver-3:580.159.04-1.*\n", ""),
        ("", "ii  nvidia-driver-pinning-580 580-1\n"),
    ],
)
def test_a_pin_is_as_good_as_a_hold(locks: str, packages: str) -> None:
    loose = "ii  nvidia-open 580.159.04-1\n"
    probes = {"gpu_packages_deb": said(loose + packages, 1), "gpu_locks": said(locks)}
    assert diagnosed([host(probes=probes)]) == []


@pytest.mark.parametrize("line", ["Pin: release l=NVIDIA CUDA", "# Pin: version 580.*"])
def test_a_pin_of_where_packages_come_from_holds_no_version(line: str) -> None:
    locks = f"==> /etc/apt/preferences.d/nvidia <==\nPackage: nvidia-*\n{line}\nPin-Priority: 600\n"
    probes = {"gpu_packages_deb": said("ii  nvidia-open 580.159.04-1\n"), "gpu_locks": said(locks)}
    assert [each.code for each in diagnosed([host(probes=probes)])] == ["driver_not_pinned"]


def test_hosts_without_cards_are_not_asked_for_any() -> None:
    bare = HostView("cpu1", {}, stated=host(card_model="", fabric="ethernet").stated)
    assert diagnosed([bare]) == []
    broken = host(probes=not_asked(9, NOT_LOADED), card_model="", fabric="")
    assert diagnosed([broken]) == []


def test_looks_that_gave_nothing_are_no_findings() -> None:
    """A time-out says nothing of the cards; that it hangs is a finding of its own."""
    late = {name: Probe(("look",), why="timeout") for name in healthy_probes()}
    assert diagnosed([HostView("gpu1", late, stated=host().stated)]) == []


@pytest.mark.parametrize(
    ("number", "flavour"),
    [
        (0x15F9, "proprietary"),  # P100
        (0x1DB1, "proprietary"),  # V100
        (0x1DF6, "proprietary"),  # V100S
        (0x1EB8, ""),  # T4
        (0x20B0, ""),  # A100
        (0x2330, ""),  # H100
        (0x2335, ""),  # H200
        (0x2342, "open"),  # GH200
        (0x2684, ""),  # RTX 4090
        (0x2901, "open"),  # B200
    ],
)
def test_the_flavour_by_pci_id(number: int, flavour: str) -> None:
    """Ids by the PCI ID repository and NVIDIA's lists, flavours by its installation guide."""
    (device,) = smi.devices(f"0000:00:06.0 0x030200 {number:#06x}")
    assert device.flavour == flavour


@pytest.mark.parametrize(
    ("card", "text", "kernel", "possible"),
    [
        ("0x2330", "NVIDIA UNIX Open Kernel Module for x86_64", "6.1.0-41-amd64", True),  # H100
        ("0x2330", "NVIDIA UNIX Open Kernel Module for x86_64", "5.12.0", True),
        ("0x2330", "NVIDIA UNIX Open Kernel Module for x86_64", "5.11.22", False),
        ("0x2330", "NVIDIA UNIX x86_64 Kernel Module", "6.1.0-41-amd64", False),
        ("0x1db5", "NVIDIA UNIX Open Kernel Module for x86_64", "6.1.0-41-amd64", False),  # V100
    ],
)
def test_dma_buf_by_card_module_and_kernel(card: str, text: str, kernel: str, possible: bool) -> None:
    """As NVIDIA's GPU operator states it: Turing or newer, the open module, Linux 5.12."""
    loaded = smi.module(f"NVRM version: {text}  580.159.04  Release Build\n")
    assert smi.dma_buf(smi.devices(f"0000:00:06.0 0x030200 {card}"), loaded, kernel) is possible


def test_the_recorded_host_is_read_whole() -> None:
    (card,) = smi.cards(recorded("nvidia-smi-q.txt"))
    assert (card.bus, card.model) == ("00000000:00:06.0", MODEL)
    assert card.said("PCI/GPU Link Info/PCIe Generation/Max") == "5"
    assert card.said("Clocks Event Reasons/HW Slowdown/HW Thermal Slowdown") == "Not Active"
    assert smi.topology(recorded("topo-m.txt")) == ("GPU0 X",)
    module = smi.module(recorded("proc_driver_nvidia_version.txt"))
    assert module is not None
    assert (module.version, module.is_open) == ("580.159.04", True)


def test_eight_cards_are_eight() -> None:
    head, _, block = recorded("nvidia-smi-q.txt").partition("GPU 00000000:00:06.0\n")
    text = head + "".join(f"GPU 00000000:{n:02X}:00.0\n{block}" for n in range(8))
    assert [card.bus[9:11] for card in smi.cards(text)] == [f"{n:02X}" for n in range(8)]


def several(*models: str, memory: str = "81559 MiB", cards: int = 0, **stated: object) -> HostView:
    """A host with such cards; those of other models than the recorded one have so much memory."""
    head, _, block = recorded("nvidia-smi-q.txt").partition("GPU 00000000:00:06.0\n")
    blocks = [
        block.replace(MODEL, model).replace("81559 MiB", "81559 MiB" if model == MODEL else memory)
        for model in models
    ]
    text = head + "".join(f"GPU 00000000:{n:02X}:00.0\n{block}" for n, block in enumerate(blocks))
    pci = "".join(f"0000:{n:02x}:00.0 0x030200 0x2330\n" for n in range(len(models)))
    probes = {"gpu_query": said(text), "gpu_pci": said(pci), "container_start": MISSING}
    return host(probes=probes, cards=cards or len(models), **stated)


@pytest.mark.parametrize(
    ("model", "memory"),
    [
        ("NVIDIA DGX Display", "4096 MiB"),
        ("NVIDIA T400 4GB", "N/A"),
        ("NVIDIA T1000 8GB", "8192 MiB"),
        ("Quadro P620", "2048 MiB"),
    ],
)
def test_a_card_for_a_display_is_not_counted(model: str, memory: str) -> None:
    """No such host was at hand: a recorded card under another name."""
    assert diagnosed([several(*[MODEL] * 4, model, memory=memory, cards=4)]) == []
    (finding,) = diagnosed([several(*[MODEL] * 3, model, memory=memory, cards=4)])
    assert (finding.code, finding.detail) == ("gpu_count", "nvidia-smi lists 3 cards, the inventory states 4")
    alone = several(model, memory=memory)
    assert [each.code for each in diagnosed([alone])] == ["gpu_model"]
    stated = several(model, memory=memory, card_model=model)
    assert diagnosed([stated]) == []


def test_sixteen_cards_are_counted_and_a_text_that_was_cut_is_not() -> None:
    """The recorded card, of which one takes 14 kB in whole, sixteen and eighty times."""
    extra = "        Filled : " + "x" * 12_000 + "\n"
    for count in (16, 80):
        view = several(*[MODEL] * count)
        text = view.probe("gpu_query").out.replace("    Processes  ", f"{extra}    Processes  ")
        answer = {"probes": {"gpu_query": {"status": 0, "out": text}}}
        assert list(rules_gpu.check([views.view("gpu1", answer, view.stated)])) == []


def test_the_probe_keeps_as_much_as_the_rules_read(probe: Any) -> None:
    looks = probe.looks_gpu({})
    assert {name: look.most for name, look in looks.items() if look.most != MOST} == LONG


def test_the_probe_asks_for_no_faults_of_programs(probe: Any) -> None:
    """journalctl has regular expressions of Perl, as Python has."""
    asked = re.compile(probe.FAULTS)
    assert all(asked.search(PLAIN.format(text)) for text in (*BAD, "131, x"))
    assert not any(asked.search(PLAIN.format(f"{number}, x")) for number in (13, 31, 43, 45))
    assert asked.search(SXID.format("Fatal"))
    assert not asked.search(SXID.format("Non-fatal"))


def test_a_damaged_inforom_hides_no_other_fault() -> None:
    """Every call of nvidia-smi then ends with status 14 and a last line."""
    last = "WARNING: infoROM is corrupted at gpu 0000:00:06.0\n"
    outs = {
        "gpu_query": recorded("nvidia-smi-q.txt"),
        "gpu_processes": BUSY,
        "gpu_nvlink": NVLINK,
        "gpu_topology": PAIR.format("SYS"),
    }
    view = host(probes={name: said(out + last, 14) for name, out in outs.items()})
    linked = host("gpu2", {"gpu_topology": said(PAIR.format("NV18"))})
    codes = [each.code for each in diagnosed([linked, view])]
    assert codes == ["gpu_inforom_damaged", "gpu_busy", "nvlink_inactive", "gpu_topology_differs"]


def test_one_more_adapter_is_no_other_topology() -> None:
    def topology(adapters: int) -> Probe:
        names = "".join(f"NIC{n}\t" for n in range(adapters))
        head = f"\t\x1b[4mGPU0\tGPU1\t{names}CPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
        links = "SYS\t" * adapters
        rows = f"GPU0\t X \tNV12\t{links}0-15\t0\t\tN/A\nGPU1\tNV12\t X \t{links}0-15\t0\t\tN/A\n"
        return said(head + rows + "NIC0\tSYS\tSYS\t X \n")

    hosts = [host(f"gpu{n}", {"gpu_topology": topology(n)}) for n in (2, 2, 3)]
    assert diagnosed(hosts) == []


def test_two_models_in_one_host_are_told() -> None:
    text = recorded("nvidia-smi-q.txt")
    other = re.sub("00:06", "00:07", text[text.index("GPU 0000") :].replace(MODEL, "NVIDIA H100 PCIe"))
    pci = recorded("sys-pci.txt") * 2
    view = host(probes={"gpu_query": said(text + other), "gpu_pci": said(pci)}, cards=2)
    codes = {each.code: each.evidence for each in diagnosed([view])}
    assert codes["gpu_model"] == "GPU 00000000:00:07.0: NVIDIA H100 PCIe"


def test_the_recording_has_no_serial_number() -> None:
    for path in (Path(__file__).parent / "diagnosis" / "h100").iterdir():
        assert "Serial" not in path.read_text(), path.name
