"""NVIDIA's driver: loaded, of one version, of the flavour that the cards need, and kept from upgrades."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from runner.diagnosis import smi
from runner.diagnosis.model import Finding, HostView, Probe, Rule
from runner.diagnosis.unlike import unlike
from runner.limits import LAST_BRANCH

RULES = (
    Rule(
        "driver_not_loaded",
        "blocking",
        "The GPU driver is not loaded",
        "no driver is installed, its module was not built for the running kernel, or it failed to load",
        "install the driver and the headers of the running kernel (provision does both), reboot, and read "
        "the "
        "kernel log (dmesg) where it is still missing",
    ),
    Rule(
        "nouveau_loaded",
        "blocking",
        "The nouveau driver holds the cards",
        "nouveau was loaded before NVIDIA's driver, which then cannot take the cards",
        "blacklist nouveau, make the initial RAM disk anew, and reboot",
    ),
    Rule(
        "nvidia_smi_missing",
        "warning",
        "The driver is loaded and nvidia-smi is not installed",
        "the package of the driver's tools was left out: a headless driver package has none",
        "install the tools of the same branch, such as nvidia-utils-580-server or nvidia-smi",
    ),
    Rule(
        "driver_library_mismatch",
        "blocking",
        "The loaded driver and its libraries are of different versions",
        "the packages were upgraded and the old module is still loaded",
        "reboot the host, then hold the driver's packages",
    ),
    Rule(
        "driver_update_pending",
        "warning",
        "Another version of the driver is installed than the one that is loaded",
        "the package was upgraded, and the host was not rebooted since",
        "reboot the host before training, or programs that start later fail with a mismatch",
    ),
    Rule(
        "driver_error",
        "blocking",
        "nvidia-smi ends with an error",
        "the driver has lost a card, or cannot work with it",
        "read the kernel log for NVRM, reboot, and have the card looked at where the error comes back",
    ),
    Rule(
        "gpu_inforom_damaged",
        "warning",
        "The infoROM of a card is damaged",
        "nvidia-smi ends with status 14: what the card keeps about itself cannot be trusted",
        "have the card looked at by who sold it; it computes meanwhile",
    ),
    Rule(
        "driver_wrong_flavour",
        "blocking",
        "The kernel module is of a flavour that does not serve these cards",
        "NVIDIA's open module needs Turing or newer; Grace Hopper and Blackwell are served by it alone",
        "remove the driver's packages and install the other flavour of the same branch: provision chooses by "
        "PCI id",
    ),
    Rule(
        "driver_too_new",
        "blocking",
        "The driver is of a branch that no longer knows these cards",
        "580 is the last branch for Maxwell, Pascal and Volta",
        "remove the driver's packages, install branch 580 (proprietary module), and pin it",
    ),
    Rule(
        "driver_not_pinned",
        "warning",
        "Nothing keeps the driver from being upgraded",
        "no package of the driver is on hold and no version is pinned: an unattended upgrade changes it "
        "under a run",
        "hold the packages (apt-mark hold, dnf versionlock) or install nvidia-driver-pinning for the branch",
    ),
    Rule(
        "driver_not_as_stated",
        "warning",
        "The driver is not the one that the inventory states",
        "the driver was changed, or cluster_driver was not",
        "write the version that is loaded into cluster_driver, or install the one that is stated",
    ),
    Rule(
        "driver_differs",
        "warning",
        "Hosts have different versions of the driver",
        "one host was provisioned or upgraded at another time",
        "install the same version on every host: figures of mixed drivers cannot be compared",
    ),
)

# What nvidia-smi's status means beside 0, 6 (no devices), 9, 14 and 18 (nvmlReturn_t of NVIDIA's NVML).
_STATUS = {
    3: "not supported",
    4: "no permission",
    8: "a card lacks its power cables",
    10: "a card's interrupts do not arrive",
    11: "the driver does not answer in time",
    12: "the NVML library is missing",
    13: "the NVML library lacks a function",
    15: "a card is lost: it has fallen off the bus",
    16: "a card needs a reset",
    17: "the operating system blocks a card",
}
# Packages that bring the module, or pull it in (names by the driver installation guide, Debian and Ubuntu).
_DRIVER = re.compile(
    r"nvidia-(?:driver|open|headless\S*|dkms\S*|kernel-dkms|open-kernel-dkms|driver-\d+\S*|open-\d+|"
    r"tesla-\S*driver|kernel-open-dkms)|cuda-drivers\S*|linux-modules-nvidia-\S+|kmod-nvidia-\S+"
)


def check(hosts: Sequence[HostView]) -> Iterator[Finding]:
    """Yield what is wrong with the driver of hosts that have cards."""
    ours = [host for host in hosts if host.stated.has_gpus]
    for host in ours:
        yield from _loaded(host)
        yield from _status(host)
        yield from _flavour(host)
        yield from _branch(host)
        yield from _versions(host)
        yield from _pinned(host)
    loaded = {host.name: smi.module_of(host) for host in ours}
    versions = {name: module.version if module else "" for name, module in loaded.items()}
    for name, version, usual in unlike(versions):
        module = loaded[name]
        line = module.line if module else ""
        yield Finding("driver_differs", name, line, f"{version} here, {usual} on the other hosts")


def _loaded(host: HostView) -> Iterator[Finding]:
    query, module = host.probe("gpu_query"), smi.module_of(host)
    modules = host.text("kernel_modules").splitlines()
    if line := next((each for each in modules if each.startswith("nouveau ")), None):
        yield Finding("nouveau_loaded", host.name, line, "NVIDIA's driver cannot take the cards")
    if module is None and (query.status == 9 or host.probe("gpu_module").why == "missing"):
        seen = _line(query) if query.status == 9 else "no file /proc/driver/nvidia/version"
        installed = host.text("gpu_module_installed").strip()
        state = f"module {installed} is installed, and not loaded" if installed else "no module is installed"
        yield Finding("driver_not_loaded", host.name, seen, state)
    if module is not None and query.why == "missing":
        yield Finding("nvidia_smi_missing", host.name, module.line, "nothing can be asked of the cards")


def _line(probe: Probe) -> str:
    """The first line that a program printed, with its exit status."""
    text = next((line.strip() for line in (probe.out + "\n" + probe.err).splitlines() if line.strip()), "")
    return f"{text} ({' '.join(probe.argv)}: exit status {probe.status})"


def _status(host: HostView) -> Iterator[Finding]:
    query = host.probe("gpu_query")
    if query.status == 18:
        module, library = smi.module_of(host), smi.version(query.out)
        said = f"module {module.version if module else 'unknown'}, libraries {library or 'unknown'}"
        yield Finding("driver_library_mismatch", host.name, _line(query), said)
    elif query.status == 14:
        yield Finding("gpu_inforom_damaged", host.name, _line(query), "nvidia-smi says so of a card")
    elif query.status is not None and query.status not in (0, 6, 9):
        yield Finding("driver_error", host.name, _line(query), _STATUS.get(query.status, "an unknown error"))


def _flavour(host: HostView) -> Iterator[Finding]:
    module = smi.module_of(host)
    if module is None:
        return
    has = "open" if module.is_open else "proprietary"
    for device in smi.devices_of(host):
        if device.is_gpu and device.flavour not in ("", has):
            card = f"card {device.address} (10de:{device.number:04x})"
            text = f"{card} is served by the {device.flavour} module only, the {has} one is loaded"
            yield Finding("driver_wrong_flavour", host.name, module.line, text)
            return


def _branch(host: HostView) -> Iterator[Finding]:
    """Whether the cards are older than the driver, loaded or installed."""
    old = [each for each in smi.devices_of(host) if each.is_gpu and each.number < smi.FIRST_WITH_GSP]
    module = smi.module_of(host)
    version = module.version if module else smi.version(host.text("gpu_module_installed"))
    if old and smi.branch(version) > LAST_BRANCH:
        line = module.line if module else f"modinfo -F version nvidia: {version}"
        text = f"card {old[0].address} (10de:{old[0].number:04x}) is served up to branch {LAST_BRANCH}"
        yield Finding("driver_too_new", host.name, line, text)


def _versions(host: HostView) -> Iterator[Finding]:
    module = smi.module_of(host)
    if module is None:
        return
    installed, stated = smi.version(host.text("gpu_module_installed")), host.stated.driver
    if installed and installed != module.version and host.probe("gpu_query").status != 18:
        text = f"{module.version} is loaded, {installed} is installed"
        yield Finding("driver_update_pending", host.name, module.line, text)
    if stated and not f"{module.version}.".startswith(f"{stated}."):
        text = f"{module.version} is loaded, cluster_driver says {stated}"
        yield Finding("driver_not_as_stated", host.name, module.line, text)


def _pinned(host: HostView) -> Iterator[Finding]:
    """A driver of no package, installed by NVIDIA's own program, is upgraded by nothing."""
    packages = smi.packages_of(host)
    drivers = {name: seen for name, seen in packages.items() if _DRIVER.fullmatch(name)}
    pinning = any(name.startswith("nvidia-driver-pinning") for name in packages)
    if not drivers or pinning or any(held for _, held in drivers.values()) or _locked(host):
        return
    name, (version, _) = next(iter(sorted(drivers.items())))
    yield Finding(
        "driver_not_pinned", host.name, f"{name} {version}", "an upgrade of packages may replace it"
    )


def _locked(host: HostView) -> bool:
    """Whether apt's preferences pin a version of the driver, or dnf's list of locks names one."""
    paragraphs = re.split(r"\n\s*\n|(?m:^==> .* <==$)", host.probe("gpu_locks").out)
    for paragraph in paragraphs:
        lines = [line.lower() for line in paragraph.splitlines() if not line.lstrip().startswith("#")]
        if not any("nvidia" in line or "cuda-drivers" in line for line in lines):
            continue
        if not any(line.startswith("package:") for line in lines):
            return True  # a list of locked packages
        if any(line.startswith("pin: version") for line in lines):
            return True
    return False
