"""How the cards of a host reach one another: NVLink, NVSwitch and its fabric manager, PCIe."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from runner.diagnosis import smi
from runner.diagnosis.model import Finding, HostView, Rule
from runner.diagnosis.unlike import unlike

RULES = (
    Rule(
        "nvlink_inactive",
        "warning",
        "Links between the cards (NVLink) are inactive",
        "a link failed to train, or the fabric manager has not set it up",
        "reset the cards or reboot; look for Xid 74 in the kernel log, and have the board looked at if it "
        "stays",
    ),
    Rule(
        "nvswitch_sxid",
        "warning",
        "An NVSwitch has reported a fatal fault since the host started",
        "a link of NVLink or the switch itself failed",
        "look the number up in NVIDIA's list of SXid errors (fabric manager user guide); reset all cards and "
        "switches or reboot, and have the board looked at where it comes back",
    ),
    Rule(
        "gpu_topology_differs",
        "warning",
        "The cards of one host are linked in another way than those of the others",
        "links are down, cards sit in other slots, or the host is of another make",
        "compare nvidia-smi topo -m of both hosts; until it is mended this host sets the pace of all",
    ),
    Rule(
        "fabric_manager_missing",
        "blocking",
        "The host has an NVSwitch and no fabric manager runs",
        "nvidia-fabricmanager is not installed, not started, or has failed: CUDA then fails with error 802",
        "install the fabric manager of exactly the driver's version, enable and start it (provision does)",
    ),
    Rule(
        "fabric_manager_version",
        "blocking",
        "The fabric manager is of another version than the driver",
        "one of the two was upgraded without the other",
        "install the fabric manager of exactly the driver's version, and hold both",
    ),
    Rule(
        "fabric_manager_needless",
        "warning",
        "A fabric manager is started on a host that has no NVSwitch",
        "boards without NVSwitch, such as 8 V100 in a cube mesh, need none: it fails or does nothing",
        "disable nvidia-fabricmanager and remove its package",
    ),
    Rule(
        "fabric_not_ready",
        "blocking",
        "The cards have not joined the fabric of the NVSwitches",
        "the fabric manager has not finished, or could not set up a card",
        "read journalctl -u nvidia-fabricmanager, restart it, and reset the cards or reboot if it stays so",
    ),
    Rule(
        "fabric_unhealthy",
        "warning",
        "The fabric of the NVSwitches serves a card badly",
        "links of the card or of a switch are down, or it is set up in a wrong way",
        "read journalctl -u nvidia-fabricmanager and the kernel log for SXid; reset the cards or reboot",
    ),
    Rule(
        "acs_on",
        "warning",
        "PCIe bridges redirect traffic between devices (ACS)",
        "Access Control Services are on: what cards and network adapters send each other goes up to the "
        "processor",
        "switch ACS off in the firmware, or until the next start by setpci -s BRIDGE ECAP_ACS+0x6.w=0000",
    ),
    Rule(
        "iommu_on",
        "warning",
        "The IOMMU translates what the cards read and write",
        "the kernel was started with the IOMMU on and not in pass-through mode",
        "add iommu=pt to the kernel's command line or switch the IOMMU off, and reboot",
    ),
)

# Types of an IOMMU group, by the kernel's document sysfs-kernel-iommu_groups; "identity" passes through.
_TRANSLATING = ("DMA", "DMA-FQ")
_ON = re.compile(r"\b(?:intel_iommu=on|amd_iommu=(?:on|force_isolation)|iommu=(?:force|nopt))\S*")
# Bits of the control register, by the PCI Express specification: source validation, redirection of requests
# and of completions, upstream forwarding.
_REDIRECTS = 0x1D
# Cards whose board links them all, by their names; others have NVLink where bridges are fitted.
_LINKED = re.compile(r"SXM\d|\b(?:H100 80GB HBM3|H200|H800|H20|B200|B300|GB200|GB300)(?: \(|$)")
_ALL_DOWN = "all links are inactive"
_SXID = re.compile(r"nvidia-nvswitch\d{1,3}: SXid \([^)]{0,80}\): (\d{1,6}), Fatal\b")


def check(hosts: Sequence[HostView]) -> Iterator[Finding]:
    """Yield what is wrong with the links of hosts that have cards."""
    ours = [host for host in hosts if host.stated.has_gpus]
    for host in ours:
        yield from _nvlink(host)
        yield from _switch(host)
        yield from _fabric_manager(host)
        yield from _fabric(host)
        yield from _iommu(host)
        yield from _acs(host)
    topologies = {host.name: "; ".join(smi.topology(smi.told(host, "gpu_topology"))) for host in ours}
    for name, rows, usual in unlike(topologies):
        row, other = next(
            ((one, two) for one, two in zip(rows.split("; "), usual.split("; "), strict=False) if one != two),
            (rows, usual),
        )
        yield Finding("gpu_topology_differs", name, row, f"the other hosts have {other}")


def _nvlink(host: HostView) -> Iterator[Finding]:
    """Links that are down, where others of the kind are up or all should be.

    The same links down on every card lead to cards that are not there: a virtual machine has some of a board.
    """
    cards: list[tuple[str, list[str]]] = []  # the line of a card, and those of its links
    for line in smi.told(host, "gpu_nvlink").splitlines():
        if line.startswith("GPU "):
            cards.append((line.strip(), []))
        elif cards and ("Link " in line or _ALL_DOWN in line.lower()):
            cards[-1][1].append(line.strip())
    cards = [(head, links) for head, links in cards if links]
    down = [[line for line in links if _is_down(line)] for _, links in cards]
    whole = [len(links) == len(lost) for (_, links), lost in zip(cards, down, strict=True)]
    alike = len(set(map(len, down))) == 1
    if alike and (all(whole) if len(cards) == 1 else not all(whole)):
        return
    lines = [
        f"{head.partition(':')[0]}: {line}"
        for (head, _), lost, all_down in zip(cards, down, whole, strict=True)
        if not all_down or _LINKED.search(head)
        for line in lost
    ]
    if lines:
        count = f"{len(lines)} link{'s' if len(lines) > 1 else ''} of NVLink without service"
        if _ALL_DOWN in lines[0].lower():
            count = "no link of NVLink is in service there"
        yield Finding("nvlink_inactive", host.name, lines[0], count)


def _is_down(line: str) -> bool:
    return "<inactive>" in line or _ALL_DOWN in line.lower()


def _switch(host: HostView) -> Iterator[Finding]:
    """Lines of the kernel's log in the form of NVIDIA's fabric manager user guide."""
    found = [
        (line.strip(), seen[1]) for line in host.text("gpu_xid").splitlines() if (seen := _SXID.search(line))
    ]
    if found:
        numbers = ", ".join(sorted({number for _, number in found}))
        yield Finding("nvswitch_sxid", host.name, found[0][0], f"SXid {numbers}")


def _fabric_manager(host: HostView) -> Iterator[Finding]:
    state = host.probe("gpu_fabric_manager").out.strip()  # active, inactive, failed, ...
    devices, module = smi.devices_of(host), smi.module_of(host)
    switch = next((device for device in devices if device.is_switch), None)
    if not state or not devices:
        return
    if switch is None:  # boards of Blackwell have some that are not on the bus
        on_board = any(device.is_gpu and device.number in smi.BLACKWELL for device in devices)
        if state in ("active", "activating", "failed") and not on_board:
            text = "no NVSwitch is on the PCI bus"
            yield Finding("fabric_manager_needless", host.name, f"nvidia-fabricmanager: {state}", text)
        return
    if state != "active":
        text = f"NVSwitch at {switch.address}, nvidia-fabricmanager is {state}"
        yield Finding("fabric_manager_missing", host.name, switch.line, text)
    for name, (version, _) in sorted(smi.packages_of(host).items()):
        managing = name.startswith(("nvidia-fabricmanager", "nvidia-fabric-manager")) and "-dev" not in name
        if managing and module is not None and smi.version(version) != module.version:
            text = f"the driver is {module.version}"
            yield Finding("fabric_manager_version", host.name, f"{name} {version}", text)


def _fabric(host: HostView) -> Iterator[Finding]:
    cards = [card for card in smi.listed(host) if not card.lost]
    for card in cards:
        state, status = card.said("Fabric/State"), card.said("Fabric/Status")
        if state not in ("", "N/A", "Not Supported", "Completed") or status not in ("", "N/A", "Success"):
            line = f"GPU {card.bus}: Fabric, State : {state}, Status : {status}"
            yield Finding("fabric_not_ready", host.name, line, "CUDA does not start on such a card")
            return
    for card in cards:
        if (health := card.said("Fabric/Health/Summary")) in ("Unhealthy", "Limited Capacity"):
            line = f"GPU {card.bus}: Fabric, Health, Summary : {health}"
            yield Finding("fabric_unhealthy", host.name, line, "collectives are slower or fail")
            return


def _iommu(host: HostView) -> Iterator[Finding]:
    """The IOMMU's mode for the cards where the kernel tells it, else what the kernel was started with."""
    cards = [device for device in smi.devices_of(host) if device.is_gpu]
    line = host.text("kernel_command_line").strip()
    if any(card.iommu for card in cards):
        if wrong := next((card for card in cards if card.iommu in _TRANSLATING), None):
            text = f"group of card {wrong.address}: {wrong.iommu}"
            yield Finding("iommu_on", host.name, wrong.line, text)
    elif (found := _ON.search(line)) and "iommu=pt" not in line:
        yield Finding("iommu_on", host.name, found[0], "so stands on the kernel's command line")


def _acs(host: HostView) -> Iterator[Finding]:
    controls = host.data("gpu_acs")
    if not isinstance(controls, dict) or not (host.stated.cards > 1 or host.stated.has_rdma):
        return
    wrong = {name: value for name, value in controls.items() if isinstance(value, int) and value & _REDIRECTS}
    if wrong:
        name, value = next(iter(sorted(wrong.items())))
        text = f"on {len(wrong)} of {len(controls)} bridges that have it"
        yield Finding("acs_on", host.name, f"{name}: ACS control {value:#06x}", text)
