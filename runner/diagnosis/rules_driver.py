"""NVIDIA's driver: loaded, of one version, of the flavour that the cards need, and kept from upgrades."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from fnmatch import fnmatchcase

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
        "driver_module_stale",
        "blocking",
        "The module that is installed is of another version than the driver's libraries",
        "the module was not built anew as the libraries were upgraded (dkms, headers of the kernel), or a "
        ".run file installed another version beside the packages",
        "see dkms status, its make.log and uname -r; install the kernel's headers and the module of the "
        "libraries' version, or remove what the .run file installed, then reboot: a reboot alone helps only "
        "where it starts a newer kernel that has the module",
    ),
    Rule(
        "driver_library_missing",
        "blocking",
        "nvidia-smi does not find the driver's libraries",
        "the package with libnvidia-ml is not installed, or is of another version, or the loader does not "
        "look there",
        "install the libraries of the driver's version (libnvidia-compute-580-server, libnvidia-ml1, "
        "nvidia-driver-cuda-libs or libnvidia-ml), then run ldconfig",
    ),
    Rule(
        "driver_no_access",
        "blocking",
        "The driver is loaded, and its device nodes are missing or may not be opened",
        "nvidia-modprobe, which makes /dev/nvidia* for users, is missing or not setuid root, or the nodes "
        "are for a group alone",
        "run nvidia-modprobe -u -c=0 and nvidia-smi as root, which make the nodes, and keep nvidia-modprobe "
        "setuid root or nvidia-persistenced enabled; where ls -l /dev/nvidia* shows a group (video, render), "
        "add the user to it; start a container with the cards",
    ),
    Rule(
        "driver_hangs",
        "blocking",
        "nvidia-smi does not end",
        "the driver waits for a card or for its firmware, or wakes many cards without persistence mode",
        "read the kernel log for NVRM and Xid, enable nvidia-persistenced, reboot, and have the card looked "
        "at where it hangs again",
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

# What nvidia-smi's status means (nvmlReturn_t of NVIDIA's NVML), beside 0, 6 (no devices), 14, 18, and those
# that have findings of their own.
_STATUS = {
    3: "not supported",
    8: "a card lacks its power cables",
    10: "a card's interrupts do not arrive",
    11: "the driver does not answer in time",
    15: "a card is lost: it has fallen off the bus",
    16: "a card needs a reset",
    17: "the operating system blocks a card",
}
_NO_ACCESS = {
    4: "this user may not open the nodes",
    9: "look whether /dev/nvidiactl and /dev/nvidia0 are there",
}
_NO_LIBRARY = {
    12: "libnvidia-ml is missing",
    13: "libnvidia-ml lacks a function: it is older than nvidia-smi",
    127: "nvidia-smi cannot be loaded",
}
# Of nvidia-smi -q whatever is no message: its head, the line of a card, values.
_REPORT = re.compile(r"=+.*|GPU [0-9A-Fa-f:.]+|\s.*|.* : .*")
# Packages that bring the module, or pull it in (names by the driver installation guide, Debian and Ubuntu).
_DRIVER = re.compile(
    r"nvidia-(?:driver|driver-cuda|open|headless\S*|dkms\S*|kernel-dkms|open-kernel-dkms|driver-\d+\S*|"
    r"open-\d+|tesla-\S*(?:driver|dkms)|kernel-open-dkms|\S+-G0\d\S*)|cuda-drivers\S*|dkms-nvidia|"
    r"linux-modules-nvidia-\S+|kmod-nvidia-\S+"
)
_OF_KERNEL = re.compile(r"linux-modules-nvidia-\S*?-(\d+\.\d+\.\d+-\d+\S*)")
_NAMED = re.compile(r"nvidia(?!-container)|cuda-drivers")
# A line of dnf's list (NAME-EPOCH:VERSION, yum has the epoch in front), of its file in TOML, of zypper's.
_LOCK = re.compile(r"(?:\d+:)?([^\s!#=]+?)-\d+[:.]\S*|name *= *\"([^\"]+)\"|solvable_name: *(\S+)")
MOST_LOCKS = 200  # patterns of names that are tried against packages, and their length


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
    works = module is not None and len(smi.listed(host)) >= max(1, host.stated.cards)
    line = next((each for each in modules if each.startswith("nouveau ")), None)
    if line and not works:  # else it has another card, of a display
        yield Finding("nouveau_loaded", host.name, line, "NVIDIA's driver cannot take the cards")
    if module is None and (query.status == 9 or host.probe("gpu_module").why == "missing"):
        seen = _line(query) if query.status == 9 else "no file /proc/driver/nvidia/version"
        installed = host.text("gpu_module_installed").strip()
        state = f"module {installed} is installed, and not loaded" if installed else "no module is installed"
        yield Finding("driver_not_loaded", host.name, seen, state)
    if module is not None and query.why == "missing":
        yield Finding("nvidia_smi_missing", host.name, module.line, "nothing can be asked of the cards")


def _line(probe: Probe) -> str:
    """What a program complains of, else the first line that it printed, with its exit status."""
    lines = [line for line in (probe.out + "\n" + probe.err).splitlines() if line.strip()]
    said = (line for line in lines if not _REPORT.fullmatch(line))
    text = next(said, lines[0] if lines else "").strip()
    return f"{text} ({' '.join(probe.argv)}: exit status {probe.status})"


def _status(host: HostView) -> Iterator[Finding]:
    query, module = host.probe("gpu_query"), smi.module_of(host)
    if smi.hangs(host):
        shown = f"{' '.join(query.argv)} (ended after {query.seconds:.0f} s)"
        yield Finding("driver_hangs", host.name, shown, "no call of nvidia-smi came back")
    elif query.status == 18:
        yield _mismatch(host, query, module)
    elif query.status == 14:
        yield Finding("gpu_inforom_damaged", host.name, _line(query), "nvidia-smi says so of a card")
    elif query.status in _NO_LIBRARY:
        yield Finding("driver_library_missing", host.name, _line(query), _NO_LIBRARY[query.status])
    elif query.status == 4 or (query.status == 9 and module is not None):
        yield Finding("driver_no_access", host.name, _line(query), _NO_ACCESS[query.status])
    elif query.status is not None and query.status not in (0, 6, 9):
        yield Finding("driver_error", host.name, _line(query), _error(query))


def _mismatch(host: HostView, query: Probe, module: smi.Module | None) -> Finding:
    """Whether a reboot mends it: not where the module that is installed is the one that is loaded."""
    loaded, libraries = module.version if module else "unknown", smi.version(query.out) or "unknown"
    stale = loaded == smi.version(host.text("gpu_module_installed"))
    code = "driver_module_stale" if stale else "driver_library_mismatch"
    state = "loaded and installed" if stale else "loaded"
    return Finding(code, host.name, _line(query), f"module {loaded} is {state}, libraries {libraries}")


def _error(query: Probe) -> str:
    if "Failed to initialize NVML: Unknown Error" in query.out + query.err:
        return "in a container, start that anew: a daemon-reload of systemd takes the cards from its cgroup"
    return _STATUS.get(query.status or 0, "an unknown error")


def _flavour(host: HostView) -> Iterator[Finding]:
    module = smi.module_of(host)
    if module is None:
        return
    has = "open" if module.is_open else "proprietary"
    for device in smi.training_cards(host):
        if device.flavour not in ("", has):
            card = f"card {device.address} (10de:{device.number:04x})"
            text = f"{card} is served by the {device.flavour} module only, the {has} one is loaded"
            yield Finding("driver_wrong_flavour", host.name, module.line, text)
            return


def _branch(host: HostView) -> Iterator[Finding]:
    """Whether the cards are older than the driver, loaded or installed."""
    old = [each for each in smi.training_cards(host) if each.number < smi.FIRST_WITH_GSP]
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
    packages, kernel = smi.packages_of(host), [*host.text("kernel").split(), "", ""][1]
    drivers = {
        name: seen
        for name, seen in packages.items()
        if _DRIVER.fullmatch(name) and not _of_another(name, kernel)
    }
    pinning = any(name.startswith("nvidia-driver-pinning") for name in packages)
    if not drivers or pinning or any(held for _, held in drivers.values()) or _locked(host, drivers):
        return
    name, (version, _) = next(iter(sorted(drivers.items())))
    yield Finding(
        "driver_not_pinned", host.name, f"{name} {version}", "an upgrade of packages may replace it"
    )


def _of_another(name: str, kernel: str) -> bool:
    """Whether a package is of modules for a kernel that does not run: they stay as they are, held or not."""
    found = _OF_KERNEL.fullmatch(name)
    return found is not None and kernel not in ("", found[1])


def _locked(host: HostView, drivers: Collection[str]) -> bool:
    """Whether a version of one of the driver's packages is pinned."""
    pins = list(_pins(host.probe("gpu_locks").out))
    loose = [each for each in pins if each.startswith(("/", "src:"))]  # expressions, names of sources
    if any(map(_DRIVER.fullmatch, pins)) or any(map(_NAMED.search, loose)):
        return True
    patterns = [each for each in pins if "*" in each and len(each) < MOST_LOCKS][:MOST_LOCKS]
    return any(fnmatchcase(name, pattern) for pattern in patterns for name in drivers)


def _pins(text: str) -> Iterator[str]:
    """Names, or patterns of names, that apt's preferences pin to a version, or that dnf or zypper lock."""
    for paragraph in re.split(r"\n\s*\n|(?m:^==> .* <==$)", text):
        lines = [line.strip() for line in paragraph.splitlines()]
        packages = [line for line in lines if line.lower().startswith("package:")]
        if any(line.lower().startswith("pin: version") for line in lines):
            for word in " ".join(packages).split():
                yield word if word.startswith(("/", "src:")) else word.partition(":")[0]
        elif not packages and 'comparator = "!="' not in lines:
            yield from (found[found.lastindex or 0] for line in lines if (found := _LOCK.fullmatch(line)))
