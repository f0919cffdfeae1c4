"""What NVIDIA's tools and kernel module print, as records.

Read from the forms of driver 580 (``nvidia-smi -q``, ``--query-compute-apps``, ``topo -m``,
``/proc/driver/nvidia/version``). The text form rather than XML: eight cards in XML are more than 200 kB.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from runner.diagnosis.model import LONG, HostView

_VERSION = re.compile(r"\d{3}\.\d+(?:\.\d+)?")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_CARD = re.compile(r"GPU ([0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])$")
_PROCESS = re.compile(r"(\d{1,10}), (.*), ([^,]*)$")
# What stands in place of a value that the driver could not get (texts of NVML's errors).
_LOST = re.compile(r"\[?(?:GPU is lost|GPU requires reset)\b.*")
_NO_VALUE = re.compile(r"\[?(?:Unknown Error|ERR!)\]?")
# Values that a card of use always has; others may be unknown of some makes.
_ALWAYS = ("Product Name", "Persistence Mode", "MIG Mode/Current", "Compute Mode")

LOOKS = ("gpu_query", "gpu_processes", "gpu_topology", "gpu_nvlink")  # calls of nvidia-smi
PATIENCE_S = 15.0  # waking sleeping cards may take longer than a deadline that the inventory made shorter

# By PCI device id: cards before Turing have no GSP, which the open module needs; those of Grace Hopper and
# from Blackwell on are served by the open module alone (docs.nvidia.com, driver installation guide, kernel
# modules; ids by the PCI ID repository and the list in NVIDIA/open-gpu-kernel-modules).
FIRST_WITH_GSP = 0x1E00
BLACKWELL = range(0x2900, 0x10000)  # and whatever comes after it
OPEN_ONLY = (range(0x2340, 0x2350), BLACKWELL)


@dataclass(frozen=True, slots=True)
class Card:
    """One card of ``nvidia-smi -q``: values by path, such as "MIG Mode/Current"."""

    bus: str
    values: Mapping[str, str]

    @property
    def model(self) -> str:
        """The product name, as the inventory states it in cluster_card_model."""
        return self.values.get("Product Name", "")

    def said(self, path: str) -> str:
        """The value at a path, "" where there is none."""
        return self.values.get(path, "")

    def number(self, path: str) -> int:
        """The whole number that a value starts with, 0 where it has none ("N/A")."""
        found = re.match(r"\d{1,15}", self.said(path))
        return int(found[0]) if found else 0

    @property
    def lost(self) -> str:
        """The path of a value that shows that the driver does not reach the card, "" where none does."""
        for path, value in self.values.items():
            dead = _LOST.fullmatch(value) and not path.startswith("Processes")
            if dead or (path in _ALWAYS and _NO_VALUE.fullmatch(value)):
                return path
        return ""


@dataclass(frozen=True, slots=True)
class Module:
    """A loaded kernel module of NVIDIA's driver; ``line`` is where it says so."""

    version: str
    is_open: bool
    line: str


@dataclass(frozen=True, slots=True)
class Device:
    """A PCI device of NVIDIA's. ``iommu`` is how its IOMMU group translates, "" where it is in none."""

    address: str
    kind: int  # the class: 0x03.... is a display controller, 0x068000 a bridge of another kind
    number: int
    iommu: str
    line: str

    @property
    def is_gpu(self) -> bool:
        """Whether it is a card: VGA or 3D controller."""
        return self.kind >> 8 in (0x0300, 0x0302)

    @property
    def is_switch(self) -> bool:
        """Whether it is an NVSwitch."""
        return self.kind >> 8 == 0x0680

    @property
    def flavour(self) -> str:
        """The only module that serves the card, "open" or "proprietary"; "" where both do."""
        if self.number < FIRST_WITH_GSP:
            return "proprietary"
        return "open" if any(self.number in each for each in OPEN_ONLY) else ""


def cards(text: str) -> tuple[Card, ...]:
    """The cards of ``nvidia-smi -q``. A path is what stands above a value with less indentation."""
    found: list[tuple[str, dict[str, str]]] = []
    above: list[tuple[int, str]] = []
    for line in text.splitlines():
        if head := _CARD.match(line):
            found.append((head[1], {}))
            above = []
            continue
        if not found or not line.strip():
            continue
        indent = len(line) - len(line.lstrip())
        name, _, value = (part.strip() for part in line.partition(" : "))
        above = [(depth, each) for depth, each in above if depth < indent] + [(indent, name)]
        found[-1][1]["/".join(each for _, each in above)] = value
    return tuple(Card(bus, values) for bus, values in found)


def listed(host: HostView) -> tuple[Card, ...]:
    """The cards that nvidia-smi lists on a host; of a text that was cut those that are whole."""
    found = cards(told(host, "gpu_query"))
    return found[:-1] if is_cut(host) else found


def told(host: HostView, name: str) -> str:
    """What a look by nvidia-smi gave; status 14, a damaged infoROM, comes with the whole output."""
    probe = host.probe(name)
    return probe.out if probe.status in (0, 14) else ""


def is_cut(host: HostView) -> bool:
    """Whether nvidia-smi -q said more than is kept."""
    return len(host.probe("gpu_query").out.encode()) >= LONG["gpu_query"]


def hangs(host: HostView) -> bool:
    """Whether no call of nvidia-smi came back, though each was waited for: a busy host answers some."""
    probes = [host.probes[name] for name in LOOKS if name in host.probes]
    late = (probe.why == "timeout" and probe.seconds >= PATIENCE_S for probe in probes)
    return host.stated.has_gpus and "gpu_query" in host.probes and all(late)


def module_of(host: HostView) -> Module | None:
    """The module of NVIDIA's driver that a host has loaded."""
    return module(host.text("gpu_module"))


def devices_of(host: HostView) -> tuple[Device, ...]:
    """The PCI devices of NVIDIA's that a host has."""
    return devices(host.text("gpu_pci"))


def training_cards(host: HostView) -> Sequence[Device]:
    """The cards on the bus that a host trains on: an old one beside them may be there for a display.

    Those that nvidia-smi lists where they are as many as is stated; else all but old display controllers.
    """
    gpus = [each for each in devices_of(host) if each.is_gpu]
    buses = {card.bus[4:].lower() for card in listed(host)}
    served = [each for each in gpus if each.address in buses]
    if served and len(served) >= host.stated.cards:
        return served
    modern = any(each.number >= FIRST_WITH_GSP for each in gpus)
    return [each for each in gpus if not modern or each.number >= FIRST_WITH_GSP or each.kind >> 8 == 0x0302]


def packages_of(host: HostView) -> Mapping[str, tuple[str, bool]]:
    """Version of each installed package of the driver's, and whether it is on hold, by its name.

    dpkg's lines are ``ii NAME VERSION``, with h for hold in front; rpm's are ``NAME VERSION``.
    """
    found = {}
    for line in host.probe("gpu_packages_deb").out.splitlines():
        words = line.split()
        if len(words) == 3 and words[0][1:] == "i":
            found[words[1]] = (words[2], words[0][0] == "h")
    for line in host.probe("gpu_packages_rpm").out.splitlines():
        words = line.split()
        if len(words) == 2:
            found[words[0]] = (words[1], False)
    return found


def module(text: str) -> Module | None:
    """The module of ``/proc/driver/nvidia/version``, None where the text is of something else."""
    for line in text.splitlines():
        if line.startswith("NVRM version:") and (found := _VERSION.search(line)):
            return Module(found[0], "Open Kernel Module" in line, line.strip())
    return None


def version(text: str) -> str:
    """The first driver version in a text, "" where there is none."""
    found = _VERSION.search(text)
    return found[0] if found else ""


def branch(text: str) -> int:
    """The branch of a driver version: 580 of 580.159.04; 0 of ""."""
    return int(text.partition(".")[0] or 0)


def processes(text: str) -> Iterator[tuple[int, str, str]]:
    """Process id, name and memory of ``--query-compute-apps=pid,process_name,used_gpu_memory``."""
    for line in text.splitlines():
        if found := _PROCESS.match(line.strip()):
            yield int(found[1]), found[2], found[3]


def topology(text: str) -> tuple[str, ...]:
    """The rows of cards in ``nvidia-smi topo -m``, one space between links, without colours.

    Of each row the links to cards alone: adapters and processors have columns behind them.
    """
    lines = _COLOUR.sub("", text).splitlines()
    head = next((line for line in lines if "CPU Affinity" in line), "")
    columns = len(re.findall(r"\bGPU\d+", head))
    rows = (line.split() for line in lines if re.match(r"GPU\d+\s", line) and line != head)
    return tuple(" ".join(row[: columns + 1]) for row in rows)


def devices(text: str) -> tuple[Device, ...]:
    """The lines ``ADDRESS CLASS DEVICE [IOMMU]`` of the probe ``nvidia_pci``."""
    found = []
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 3 and all(re.fullmatch(r"0x[0-9a-f]{1,6}", word) for word in words[1:3]):
            iommu = words[3] if len(words) > 3 else ""
            found.append(Device(words[0], int(words[1], 16), int(words[2], 16), iommu, line.strip()))
    return tuple(found)


def dma_buf(devices: Sequence[Device], loaded: Module | None, kernel: str) -> bool:
    """Whether cards can be registered for RDMA through DMA-BUF: open module, Turing or newer, kernel 5.12."""
    release = re.match(r"(\d{1,4})\.(\d{1,4})", kernel)
    if release is None or loaded is None or not loaded.is_open:
        return False
    gpus = [each for each in devices if each.is_gpu]
    new = all(each.number >= FIRST_WITH_GSP for each in gpus)
    return new and (int(release[1]), int(release[2])) >= (5, 12)
