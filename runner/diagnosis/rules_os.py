"""The operating system of the hosts: versions, security modules, mounts, and what earlier runs left."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from runner.diagnosis import loose
from runner.diagnosis.model import Finding, HostView, Rule
from runner.diagnosis.unlike import unlike

RULES = (
    Rule(
        "os_differs",
        "warning",
        "The operating system is another one than on the other hosts",
        "hosts were set up at different times or from different images, so libraries differ",
        "set the host up as the others; until then only workloads in containers are comparable",
    ),
    Rule(
        "kernel_differs",
        "warning",
        "The running kernel is another one than on the other hosts",
        "an update was installed or a reboot left out on some hosts; drivers are built for one kernel",
        "install the same kernel package on all hosts and reboot the one that differs",
    ),
    Rule(
        "security_modules_differ",
        "warning",
        "SELinux or AppArmor is set otherwise than on the other hosts",
        "what is allowed on one host is refused on another, as reading mounts in containers",
        "set the same mode on all hosts (/etc/selinux/config, or apparmor= on the kernel's command line)",
    ),
    Rule(
        "selinux_enforcing",
        "info",
        "SELinux is enforcing",
        "containers may be refused the host's folders and devices that they are given",
        "where a container says 'Permission denied', see 'ausearch -m avc -ts recent', and start it with"
        " --security-opt label=disable",
    ),
    Rule(
        "mount_hangs",
        "blocking",
        "A mounted file system does not answer",
        "its server is off or cannot be reached; whatever touches it hangs, be it only a listing",
        "bring its server back, or unmount it with umount -f -l",
    ),
    Rule(
        "packages_half_installed",
        "warning",
        "Packages are half installed",
        "an installation was broken off, its own script failed, or it is going on; apt installs nothing else"
        " until then",
        "once no installation is going on: dpkg --configure -a; what cannot be finished: apt-get remove it;"
        " then run provision",
    ),
    Rule(
        "run_active",
        "info",
        "A run is working on the host",
        "another command of this kit holds the host's lock",
        "wait for its end, or end it with stop; what is measured meanwhile disturbs both",
    ),
    Rule(
        "run_left_over",
        "warning",
        "Processes of a run that is over are still there",
        "the run was broken off where its agent could not end them, and they hold cores and card memory",
        "look at them with ps; end them with stop, or by their ids",
    ),
)


def check(hosts: Sequence[HostView]) -> Iterator[Finding]:
    """Yield what is wrong with the operating systems."""
    for host in hosts:
        yield from _selinux(host)
        yield from _mounts(host)
        yield from _half_installed(host)
        yield from _runs(host)
    yield from _differences(hosts)


# --- between hosts ---------------------------------------------------------------------------


def _differences(hosts: Sequence[HostView]) -> Iterator[Finding]:
    for code, what, of in (
        ("os_differs", "the system", _system),
        ("kernel_differs", "the kernel", _kernel),
        ("security_modules_differ", "the mode", _modules),
    ):
        for host, value, usual in unlike({host.name: of(host) for host in hosts}):
            yield Finding(code, host, value, f"{what} is {value}, elsewhere it is {usual}")


def _system(host: HostView) -> str:
    """As in "debian 12"."""
    found = dict(re.findall(r'^(ID|VERSION_ID)="?([^"\n]*)"?$', host.text("os_release"), re.MULTILINE))
    return f"{found.get('ID', '')} {found.get('VERSION_ID', '')}".strip()


def _kernel(host: HostView) -> str:
    """Its release, the second word of ``uname -srvm``."""
    return [*host.text("kernel").split(), "", ""][1]


def _modules(host: HostView) -> str:
    """The mode of both security modules; "" where not even the kernel's version could be read."""
    selinux = {"1": "enforcing", "0": "permissive"}.get(host.text("selinux").strip(), "off")
    apparmor = "on" if host.text("apparmor").strip() == "Y" else "off"
    return f"SELinux {selinux}, AppArmor {apparmor}" if _kernel(host) else ""


def _selinux(host: HostView) -> Iterator[Finding]:
    if host.text("selinux").strip() == "1":
        yield Finding("selinux_enforcing", host.name, "/sys/fs/selinux/enforce: 1", "SELinux is enforcing")


# --- mounts and runs -------------------------------------------------------------------------


def _mounts(host: HostView) -> Iterator[Finding]:
    """Mounts of file servers, each of which was asked with a deadline of its own."""
    for mount in loose.rows(host.data("mounts")):
        if mount.get("hangs") is True:
            source, at, kind = (loose.text(mount, key) for key in ("source", "at", "type"))
            shown = f"{source} {at} {kind}: no answer within {loose.number(mount, 'seconds') or 0:g} s"
            yield Finding("mount_hangs", host.name, shown, f"{at} does not answer")


def _half_installed(host: HostView) -> Iterator[Finding]:
    """By dpkg's own record; as in "docker-ce: install ok half-configured"."""
    data = loose.mapping(host.data("half_installed"))
    states, steps = loose.texts(data, "packages"), loose.number(data, "journal") or 0.0
    names = [state.partition(":")[0] for state in states]
    journal = [f"steps in dpkg's journal: {steps:.0f}"] if steps else []
    if states or journal:
        detail = ", ".join(names[:8]) or "dpkg was interrupted"
        yield Finding("packages_half_installed", host.name, "; ".join([*states, *journal]), detail)


def _runs(host: HostView) -> Iterator[Finding]:
    """The lock of the host, and processes that carry the mark of a run that does not hold it."""
    data = loose.mapping(host.data("runs"))
    holder = loose.text(data, "run") if data.get("held") is True else ""
    if holder:
        shown = f"{loose.text(data, 'lock')} is held by {holder}"
        yield Finding("run_active", host.name, shown, f"{holder} is working")
    left: dict[str, list[str]] = {}
    for process in loose.rows(data.get("processes")):
        if (run := loose.text(process, "run")) != holder:
            shown = f"{loose.number(process, 'pid') or 0:.0f} {loose.text(process, 'name')}"
            left.setdefault(run, []).append(shown)
    for run, processes in left.items():
        yield Finding("run_left_over", host.name, ", ".join(processes[:8]), f"{len(processes)} of {run}")
