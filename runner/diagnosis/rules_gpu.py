"""The cards themselves: as many and of the kind that is stated, sound, set up for training, and idle."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from runner.diagnosis import smi
from runner.diagnosis.model import Finding, HostView, Rule

RULES = (
    Rule(
        "gpu_count",
        "blocking",
        "The host has fewer cards than the inventory states",
        "a card is broken, has fallen off the bus or is not served by the driver, or cluster_cards is wrong",
        "look for NVRM in the kernel log and for the card in lspci; correct cluster_cards where it is wrong",
    ),
    Rule(
        "gpu_count_more",
        "info",
        "The host has more cards than the inventory states",
        "cluster_cards leaves some out",
        "raise cluster_cards if all are to be used",
    ),
    Rule(
        "gpu_model",
        "blocking",
        "The cards are not those that the inventory states",
        "cluster_card_model is wrong, or the host is another one",
        "write into cluster_card_model what nvidia-smi shows: what can run, and the tables, go by it",
    ),
    Rule(
        "gpu_needs_reset",
        "blocking",
        "A card is lost, or needs a reset",
        "the driver does not reach the card, or asks for its reset after a fault",
        "reset the card (nvidia-smi --gpu-reset) when nothing runs there, or reboot; read the kernel log for "
        "NVRM, and have the card looked at where it comes back",
    ),
    Rule(
        "gpu_ecc_errors",
        "blocking",
        "A card has memory errors that were not corrected",
        "memory of the card is damaged, or was hit since the driver was loaded",
        "reset the card (nvidia-smi --gpu-reset, or reboot); replace it where the errors come back",
    ),
    Rule(
        "gpu_retired_pages",
        "blocking",
        "A card has retired too many pages of its memory, or waits to retire some",
        "cells of its memory are worn or broken",
        "reboot where pages are pending; from 62 retired pages on have the card replaced",
    ),
    Rule(
        "gpu_remapped_rows",
        "blocking",
        "A card waits for rows of its memory to be remapped, or could not remap them",
        "cells of its memory are broken; spare rows take their place at the next reset",
        "reset the card (nvidia-smi --gpu-reset, or reboot) where it is pending; replace it where remapping "
        "failed",
    ),
    Rule(
        "gpu_memory_worn",
        "blocking",
        "The memory of a card is beyond repair",
        "it had more errors than NVIDIA allows, or no spare memory is left",
        "have the card tested and replaced",
    ),
    Rule(
        "gpu_repair_pending",
        "warning",
        "A card waits for a repair of its own",
        "a part of its memory or of its processors is broken; a spare one takes its place at the next reset",
        "reset the card (nvidia-smi --gpu-reset) when nothing runs there, or reboot",
    ),
    Rule(
        "gpu_xid",
        "warning",
        "The driver has reported a fault of a card since the host started",
        "hardware of the card, its link or its memory failed, or a program was ended by it",
        "look the number up in NVIDIA's list of Xid errors; reboot, and replace the card where it comes back",
    ),
    Rule(
        "gpu_throttled",
        "warning",
        "A card runs slower than it could, to protect itself",
        "it is too hot, or its power supply asks for less",
        "look at fans, air flow, inlet temperature and power supplies of this host",
    ),
    Rule(
        "gpu_mig",
        "blocking",
        "A card is divided into instances (MIG)",
        "MIG mode is on: a process gets a part of the card",
        "nvidia-smi -mig 0 on this host when nothing runs there, then reset the card",
    ),
    Rule(
        "gpu_setting_pending",
        "warning",
        "A setting of a card changes at its next reset",
        "ECC or MIG was switched, and the card was not reset since",
        "reset the card (nvidia-smi --gpu-reset) when nothing runs there or reboot, or switch it back "
        "(nvidia-smi -e, nvidia-smi -mig)",
    ),
    Rule(
        "gpu_power_limit",
        "warning",
        "The power limit of a card is far below its default",
        "somebody has lowered it, or a service does at each start",
        "nvidia-smi -pl with the default limit on this host; look for the service that lowers it",
    ),
    Rule(
        "gpu_pcie_width",
        "warning",
        "A card uses fewer PCIe lanes than it could",
        "the card or a riser does not sit well, a lane is broken, or the slot has fewer lanes",
        "look up the slot's lanes in the board's manual; have the card seated anew, or the riser replaced",
    ),
    Rule(
        "gpu_compute_mode",
        "warning",
        "A card is not in the default compute mode",
        "the compute mode lets one process or none use it",
        "nvidia-smi -c DEFAULT on this host",
    ),
    Rule(
        "gpu_busy",
        "blocking",
        "Processes use the cards",
        "another job runs, or processes of one that was ended are left",
        "ask who runs them; stop what is left of a run of runkit with the command stop, end others by their "
        "id",
    ),
    Rule(
        "gpu_persistence_off",
        "warning",
        "Persistence mode is off",
        "nvidia-persistenced does not run: the driver lets go of idle cards, and each start takes seconds "
        "more",
        "enable and start nvidia-persistenced (provision does)",
    ),
)

MOST_RETIRED = 62  # a card is replaced from here on (azure_gpu_ecc.nhc, azurehpc-health-checks)
LEAST_POWER = 0.9  # of the default limit
SMALL_MB = 8192  # memory of a card that is there for a display, at most
_DISPLAY = re.compile(r"(?:nvidia )?(?:dgx display|(?:quadro )?t\d{3,4}\b)")
# Faults of hardware, by Azure's list in azurehpc-health-checks and, the second, by NVIDIA's catalog of Xid
# errors; others are of programs.
BAD_XIDS = frozenset((48, 56, 57, 58, 62, 63, 64, 65, 68, 69, 73, 74, 79, 80, 81, 92, 119, 120))
BAD_XIDS |= {46, 61, 94, 95, 110, 136, 140, 143, 156, 158, 171, 172}
NVLINK_XIDS = range(144, 151)  # of NVLink 5; their line says whether it is fatal
RECOVERY_XID = 154
_XID = re.compile(r"NVRM: Xid \([^)]{0,80}\): (\d{1,4})\b")
_RECOVERY = re.compile(r" to 0x[0-9a-fA-F]{1,8} \((?!None\))")
_SLOWED = re.compile(r"Clocks (?:Event|Throttle) Reasons/(?:.*/)?(?:HW|SW Thermal)[A-Za-z ]*Slowdown")
# The recorded names may go on ("SRAM Uncorrectable SEC-DED"). Volta has sections Single Bit and Double Bit,
# with lines for each kind of memory, in their place (NVIDIA's manual of nvidia-smi).
_UNCORRECTED = re.compile(r"ECC Errors/Volatile/.*(?:Uncorrectable|Double Bit).*")


def check(hosts: Sequence[HostView]) -> Iterator[Finding]:
    """Yield what is wrong with the cards of hosts that have some."""
    for host in hosts:
        if host.stated.has_gpus:
            there = _for_training(host)
            cards = [card for card in there if not card.lost]
            yield from _count(host, there)
            yield from _model(host, cards)
            yield from _reset(host, there)
            yield from _memory(host, cards)
            yield from _settings(host, cards)
            yield from _limits(host, cards)
            yield from _throttled(host, cards)
            yield from _xid(host)
            yield from _busy(host)


def _one(code: str, host: HostView, lines: Sequence[str], detail: str) -> Iterator[Finding]:
    """One finding of a host, with the first of its lines, where it has any."""
    if lines:
        more = f" (and {len(lines) - 1} more)" if len(lines) > 1 else ""
        yield Finding(code, host.name, lines[0] + more, detail)


def _for_training(host: HostView) -> Sequence[smi.Card]:
    """All cards; beside those of the stated model without one that is there for a display."""
    cards = smi.listed(host)
    stated = [same_model(host.stated.card_model, card.model) for card in cards]
    if not any(stated):
        return cards
    return [card for card, ours in zip(cards, stated, strict=True) if ours or not _for_display(card)]


def _for_display(card: smi.Card) -> bool:
    small = 0 < card.number("FB Memory Usage/Total") <= SMALL_MB
    return small or _DISPLAY.match(card.model.lower()) is not None


def _count(host: HostView, cards: Sequence[smi.Card]) -> Iterator[Finding]:
    query, stated = host.probe("gpu_query"), host.stated.cards
    if query.status not in (0, 6, 14) or smi.is_cut(host):
        return  # nothing is known; why is a finding of the driver
    on_bus = sum(device.is_gpu for device in smi.devices_of(host))
    shown = query.out.strip().splitlines()[:1] if query.status == 6 else []
    line = shown[0] if shown else f"Attached GPUs : {len(cards)}"
    bus = f"; {on_bus} are on the PCI bus" if on_bus != len(smi.listed(host)) else ""
    text = f"nvidia-smi lists {len(cards)} cards, the inventory states {stated}{bus}"
    if len(cards) != stated:
        yield Finding("gpu_count" if len(cards) < stated else "gpu_count_more", host.name, line, text)


def _model(host: HostView, cards: Sequence[smi.Card]) -> Iterator[Finding]:
    stated = host.stated.card_model
    lines = [f"GPU {card.bus}: {card.model}" for card in cards if not same_model(stated, card.model)]
    yield from _one("gpu_model", host, lines, f"cluster_card_model says {stated}")


def same_model(stated: str, model: str) -> bool:
    """Whether a card is of the stated model; more may be stated behind its name, as in "NAME sm_90 80GB"."""
    one, other = (each.lower().removeprefix("nvidia ") for each in (stated, model))
    return f"{one} ".startswith(f"{other} ")


def _memory(host: HostView, cards: Sequence[smi.Card]) -> Iterator[Finding]:
    wrong: dict[str, list[str]] = {
        "gpu_ecc_errors": [],
        "gpu_retired_pages": [],
        "gpu_remapped_rows": [],
        "gpu_memory_worn": [],
        "gpu_repair_pending": [],
    }
    for card in cards:
        for path in card.values:
            if _UNCORRECTED.fullmatch(path) and card.number(path):
                wrong["gpu_ecc_errors"].append(_shown(card, path))
        pages = ("Retired Pages/Single Bit ECC", "Retired Pages/Double Bit ECC")
        if sum(map(card.number, pages)) >= MOST_RETIRED:
            wrong["gpu_retired_pages"].append(_shown(card, *pages))
        for code, path in (
            ("gpu_retired_pages", "Retired Pages/Pending Page Blacklist"),
            ("gpu_remapped_rows", "Remapped Rows/Pending"),
            ("gpu_remapped_rows", "Remapped Rows/Remapping Failure Occurred"),
            ("gpu_memory_worn", "ECC Errors/Unrepairable Memory"),
            ("gpu_memory_worn", "ECC Errors/Aggregate/SRAM Threshold Exceeded"),
            ("gpu_repair_pending", "ECC Errors/Channel Repair Pending"),
            ("gpu_repair_pending", "ECC Errors/TPC Repair Pending"),
        ):
            if card.said(path) == "Yes":
                wrong[code].append(_shown(card, path))
    for code, lines in wrong.items():
        yield from _one(code, host, lines, "nvidia-smi -q shows it of a card")


def _shown(card: smi.Card, *paths: str) -> str:
    """Lines of nvidia-smi -q as one, with the card that they are about."""
    said = ", ".join(f"{path.replace('/', ', ')} : {card.said(path)}" for path in paths)
    return f"GPU {card.bus}: {said}"


def _reset(host: HostView, cards: Sequence[smi.Card]) -> Iterator[Finding]:
    asks, lines = "GPU Recovery Action", []
    for card in cards:
        if path := card.lost or (asks if card.said(asks).startswith(("Reset", "Reboot", "Drain")) else ""):
            lines.append(_shown(card, path))
    yield from _one("gpu_needs_reset", host, lines, "programs on such a card fail")


def _settings(host: HostView, cards: Sequence[smi.Card]) -> Iterator[Finding]:
    for code, path, wrong, text in (
        ("gpu_mig", "MIG Mode/Current", "Enabled", "a rank would get a part of a card"),
        ("gpu_compute_mode", "Compute Mode", "(?:Exclusive_.*|Prohibited)", "a rank may be refused the card"),
        ("gpu_persistence_off", "Persistence Mode", "Disabled", "cards go to sleep between two runs"),
    ):
        lines = [_shown(card, path) for card in cards if re.fullmatch(wrong, card.said(path))]
        yield from _one(code, host, lines, text)
    pending = [
        _shown(card, f"{mode}/Current", f"{mode}/Pending")
        for card in cards
        for mode in ("ECC Mode", "Ecc Mode", "MIG Mode")  # Ecc: until driver 510
        if {card.said(f"{mode}/Current"), card.said(f"{mode}/Pending")} == {"Enabled", "Disabled"}
    ]
    yield from _one("gpu_setting_pending", host, pending, "it takes effect at the next reset")


def _limits(host: HostView, cards: Sequence[smi.Card]) -> Iterator[Finding]:
    """Power and PCIe lanes. The generation of PCIe is lower while a card idles, the lanes stay as many."""
    power, narrow = [], []
    limit, default = (f"GPU Power Readings/{name} Power Limit" for name in ("Current", "Default"))
    width, most = (f"PCI/GPU Link Info/Link Width/{name}" for name in ("Current", "Max"))
    for card in cards:
        if 0 < card.number(limit) < LEAST_POWER * card.number(default):
            power.append(_shown(card, limit, default))
        # A virtual machine does not see the slot, which may have half the lanes.
        slot = card.number("PCI/GPU Link Info/PCIe Generation/Host Max")
        if 0 < card.number(width) * (1 if slot else 2) < card.number(most):
            narrow.append(_shown(card, width, most))
    yield from _one("gpu_power_limit", host, power, "figures of this host would be too low")
    yield from _one("gpu_pcie_width", host, narrow, "data reaches the card more slowly")


def _throttled(host: HostView, cards: Sequence[smi.Card]) -> Iterator[Finding]:
    lines = [
        _shown(card, path)
        for card in cards
        for path, value in card.values.items()
        if value == "Active" and _SLOWED.fullmatch(path)
    ]
    yield from _one("gpu_throttled", host, lines, "figures of this host would be too low")


def _xid(host: HostView) -> Iterator[Finding]:
    """Lines of the kernel's log, in the form that NVIDIA's page on Xid errors gives."""
    found = [
        (line.strip(), seen) for line in host.text("gpu_xid").splitlines() if (seen := _XID.search(line))
    ]
    bad = {line: int(seen[1]) for line, seen in found if _is_hardware(int(seen[1]), line)}
    yield from _one("gpu_xid", host, list(bad), f"Xid {', '.join(map(str, sorted(set(bad.values()))))}")


def _is_hardware(number: int, line: str) -> bool:
    if number in NVLINK_XIDS:
        return re.search(r"\bFatal\b", line) is not None
    if number == RECOVERY_XID:
        return _RECOVERY.search(line) is not None
    return number in BAD_XIDS


def _busy(host: HostView) -> Iterator[Finding]:
    running = list(smi.processes(smi.told(host, "gpu_processes")))
    names = ", ".join(f"{name} (process {pid}, {memory})" for pid, name, memory in running)
    lines = [f"{pid}, {name}, {memory}" for pid, name, memory in running]
    yield from _one("gpu_busy", host, lines, f"{names}: left as they are")
