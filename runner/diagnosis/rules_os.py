"""The operating system of the hosts: limits, space, clocks, services, and what earlier runs left."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from runner.diagnosis.model import Finding, HostView, Rule
from runner.diagnosis.unlike import unlike

GIB = 1 << 30
FULL = GIB  # bytes free below which a run cannot be recorded
DATA = 20 * GIB  # below which no data set of the published workloads fits
TMP = 2 * GIB  # sockets, compilers' caches and locks of ranks go there
SHM = GIB  # NCCL and data loaders; a container that is not told otherwise has 64 MiB
INODES = 0.01  # of all, free

RULES = (
    Rule(
        "memlock_session",
        "blocking",
        "Processes that ssh starts may lock too little memory for RDMA",
        "the limit memlock of a session is the distribution's few MiB, so memory cannot be registered with a"
        " network card (ibv_reg_mr fails)",
        "run provision, or write '* - memlock unlimited' and 'root - memlock unlimited' into"
        " /etc/security/limits.d/90-runkit.conf and see that sshd uses PAM",
    ),
    Rule(
        "memlock_session_low",
        "info",
        "Processes that ssh starts may lock little memory; it matters with RDMA only",
        "the limit memlock of a session is the distribution's few MiB",
        "nothing on Ethernet; before RDMA is used, run provision, which raises it",
    ),
    Rule(
        "memlock_service",
        "warning",
        "Processes that systemd starts may lock too little memory for RDMA",
        "DefaultLimitMEMLOCK of systemd is the distribution's few MiB, and services without a limit of their"
        " own get it",
        "run provision, or set DefaultLimitMEMLOCK=infinity below [Manager] in /etc/systemd/system.conf.d and"
        " restart the services",
    ),
    Rule(
        "shm_small",
        "warning",
        "Shared memory is small",
        "it was limited when it was mounted; NCCL and data loaders exchange their data there",
        "mount -o remount,size=50% /dev/shm, and state the same in /etc/fstab",
    ),
    Rule(
        "disk_full",
        "blocking",
        "The disk of the runs or of the data is full",
        "less than 1 GiB is free, so logs or results would be cut off",
        "free space there, or state another folder in bench_agent_root or cluster_data_root",
    ),
    Rule(
        "data_space",
        "warning",
        "Little space for data sets",
        "less than 20 GiB is free where cluster_data_root lies",
        "free space there or state a folder on a larger disk in cluster_data_root; where the data sets lie"
        " already, nothing",
    ),
    Rule(
        "tmp_space",
        "warning",
        "Little space in /tmp",
        "less than 2 GiB is free; MPI keeps its session and compilers their caches there",
        "remove old files from /tmp, or make it larger",
    ),
    Rule(
        "inodes_short",
        "warning",
        "A file system has hardly any inodes left",
        "many small files used them up; new files fail with 'no space left' though space is free",
        "remove folders of many small files, such as old runs or unpacked data sets",
    ),
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
        "time_service_off",
        "warning",
        "No time service runs",
        "chrony, systemd-timesyncd or ntpd is not installed or was stopped, so clocks drift apart",
        "run provision, which installs and starts chrony",
    ),
    Rule(
        "clock_unsynchronized",
        "warning",
        "The clock is not synchronized",
        "the time service runs, and has reached no source of time",
        "see 'chronyc sources' or 'timedatectl timesync-status'; give it a server that the host can reach",
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
    sessions = _sessions(hosts)
    for host in hosts:
        yield from _memlock_session(host, sessions.get(host.name) or host.text("limits"))
        yield from _memlock_service(host)
        yield from _space(host)
        yield from _time_service(host)
        yield from _selinux(host)
        yield from _mounts(host)
        yield from _runs(host)
    yield from _differences(hosts)


# --- limits ----------------------------------------------------------------------------------


def _sessions(hosts: Sequence[HostView]) -> dict[str, str]:
    """The limits of a process on each host that the launch host started there by ssh, as ranks are."""
    found: dict[str, str] = {}
    for host in hosts:
        data = host.data("ssh")
        for name, said in data.items() if isinstance(data, Mapping) else ():
            found[name] = str(said.get("out", "")) if said.get("status") == 0 else ""
    return found


def _memory(host: HostView) -> int:
    """Bytes of memory; 0 where not known."""
    total = re.search(r"^MemTotal:\s+(\d+) kB", host.text("meminfo"), re.MULTILINE)
    return int(total[1]) * 1024 if total else 0


def _is_low(limit: str, memory: int) -> bool:
    """Whether a limit in bytes is below half of the memory; "unlimited" and "infinity" are not."""
    return limit.isdecimal() and int(limit) < max(memory // 2, GIB)


def _memlock_session(host: HostView, limits: str) -> Iterator[Finding]:
    line = re.search(r"^Max locked memory\s+(\S+).*", limits, re.MULTILINE)
    if line and _is_low(line[1], _memory(host)):
        code = "memlock_session" if host.stated.has_rdma else "memlock_session_low"
        detail = f"a process that ssh started may lock {int(line[1]) // 1024} KiB"
        yield Finding(code, host.name, " ".join(line[0].split()), detail)


def _memlock_service(host: HostView) -> Iterator[Finding]:
    line = re.search(r"^DefaultLimitMEMLOCK=(\S+)$", host.text("service_limits"), re.MULTILINE)
    if host.stated.has_rdma and line and _is_low(line[1], _memory(host)):
        yield Finding("memlock_service", host.name, line[0], f"a service may lock {int(line[1]) // 1024} KiB")


# --- space -----------------------------------------------------------------------------------


def _space(host: HostView) -> Iterator[Finding]:
    """What ``stat --file-system`` said of the folders that a run writes to."""
    data = host.data("space")
    places: dict[str, Any] = dict(data) if isinstance(data, Mapping) else {}
    for use, place in places.items():
        at, free, size = place["at"], place["free"], place["size"]
        shown = f"{place['path']} on {at}: {free} of {size} bytes free"
        if use == "shm":
            if size < SHM:
                yield Finding("shm_small", host.name, shown, f"it holds {_gib(size)}")
        elif use in ("data", "runs") and free < FULL:
            yield Finding("disk_full", host.name, shown, f"{place['path']}: {_gib(free)} free")
        elif use == "data" and free < DATA:
            yield Finding("data_space", host.name, shown, f"{place['path']}: {_gib(free)} free")
        elif use == "tmp" and free < TMP:
            yield Finding("tmp_space", host.name, shown, f"{_gib(free)} free")
        if place["inodes"] and place["inodes_free"] < INODES * place["inodes"]:
            shown = f"{at}: {place['inodes_free']} of {place['inodes']} inodes free"
            yield Finding("inodes_short", host.name, shown, f"{place['path']}: hardly any new file fits")


def _gib(size: int) -> str:
    return f"{size / GIB:.1f} GiB"


def _mounts(host: HostView) -> Iterator[Finding]:
    """Mounts of file servers, each of which was asked with a deadline of its own."""
    for mount in host.data("mounts") or ():
        if mount["hangs"]:
            shown = (
                f"{mount['source']} {mount['at']} {mount['type']}: no answer within {mount['seconds']:g} s"
            )
            yield Finding("mount_hangs", host.name, shown, f"{mount['at']} does not answer")


# --- time ------------------------------------------------------------------------------------


def _time_service(host: HostView) -> Iterator[Finding]:
    """Of a host with a clock of its own: that of a container is its machine's."""
    units = host.probe("time_units").out.split()
    if not units or host.text("container").strip():
        return
    if "active" not in units:
        shown = f"{' '.join(host.probe('time_units').argv)}: {', '.join(units)}"
        yield Finding("time_service_off", host.name, shown, "no time service is active")
    elif "NTPSynchronized=no" in host.text("time_state").splitlines():
        yield Finding(
            "clock_unsynchronized", host.name, "NTPSynchronized=no", "no source of time was reached"
        )


# --- between hosts ---------------------------------------------------------------------------


def _differences(hosts: Sequence[HostView]) -> Iterator[Finding]:
    for code, what, of in (
        ("os_differs", "the system", _system),
        ("kernel_differs", "the kernel", _kernel),
        ("security_modules_differ", "the mode", _modules),
    ):
        for host, value, usual in unlike({host.name: of(host) for host in hosts}):
            yield Finding(code, host, value, f"{what} is {value}, that of most hosts {usual}")


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


# --- runs ------------------------------------------------------------------------------------


def _runs(host: HostView) -> Iterator[Finding]:
    """The lock of the host, and processes that carry the mark of a run that does not hold it."""
    data = host.data("runs")
    if not isinstance(data, Mapping):
        return
    holder = data["run"] if data["held"] else ""
    if holder:
        yield Finding("run_active", host.name, f"{data['lock']} is held by {holder}", f"{holder} is working")
    left: dict[str, list[str]] = {}
    for process in data["processes"]:
        if process["run"] != holder:
            left.setdefault(process["run"], []).append(f"{process['pid']} {process['name']}")
    for run, processes in left.items():
        yield Finding("run_left_over", host.name, ", ".join(processes[:8]), f"{len(processes)} of {run}")
