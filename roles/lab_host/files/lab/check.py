"""Whether this machine can host a lab; what is missing, and where to get it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import names

PROGRAMS = {  # program -> package of Debian and Ubuntu, of Fedora and EL
    "systemd-nspawn": ("systemd-container", "systemd-container"),
    "debootstrap": ("debootstrap", "debootstrap"),
    "apt-cacher-ng": ("apt-cacher-ng", ""),
    "ip": ("iproute2", "iproute"),
    "ssh-keygen": ("openssh-client", "openssh"),
    "setpriv": ("util-linux", "util-linux"),
    "unshare": ("util-linux", "util-linux"),
}


def missing() -> list[str]:
    """One line per thing that stands in the way; none where a lab can be made."""
    if not sys.platform.startswith("linux"):
        return [f"a lab needs Linux, this is {sys.platform}; use a virtual machine with Debian 12"]
    if os.geteuid() != 0:
        return ["a lab makes network interfaces and mounts: run it as root (sudo python -m runner lab up)"]
    programs = list(_programs())
    if programs:
        return [*programs, *_kernel({"ip", "unshare"} <= {name for name in PROGRAMS if shutil.which(name)})]
    return list(_kernel(True))


def _programs() -> Iterator[str]:
    lacking = [name for name in PROGRAMS if shutil.which(name) is None]
    if not lacking:
        return
    debian = shutil.which("apt-get") is not None
    packages = sorted({PROGRAMS[name][0 if debian else 1] for name in lacking} - {""})
    for name in lacking:
        if not PROGRAMS[name][0 if debian else 1]:
            yield f"{name} is missing, and not packaged here; use Debian or Ubuntu for the lab's machine"
    if packages:
        tool = "apt-get install" if debian else "dnf install"
        yield f"{', '.join(lacking)}: missing; {tool} {' '.join(packages)}"


def _kernel(tools: bool) -> Iterator[str]:
    if _first("/sys/fs/selinux/enforce") == "1":
        yield "SELinux is enforcing, and would stop the hosts' systemd; setenforce 0 while the lab is up"
    if tuple(map(int, re.findall(r"\d+", os.uname().release)[:2])) < (5, 19):
        yield f"Linux {os.uname().release} is too old; overlays on idmapped mounts need 5.19, as in Debian 12"
    if not Path("/proc/self/ns/user").exists() or _first("/proc/sys/user/max_user_namespaces") == "0":
        yield "user namespaces are switched off; sysctl user.max_user_namespaces=65536"
    for what, try_it, advice in _trials() if tools else ():
        if said := try_it():
            yield f"{what}: {said}; {advice}"


def _trials() -> Iterator[tuple[str, Callable[[], str], str]]:
    nested = _nested()
    where = f"this is inside of a container ({nested}); start it with --privileged, or use a virtual machine"
    yield "network interfaces cannot be made", _try_bridge, where if nested else "modprobe bridge veth"
    yield (
        "an overlay cannot be mounted",
        _try_overlay,
        (where if nested else f"modprobe overlay, or put {names.STATE} on a file system such as ext4 or xfs"),
    )
    yield "control groups cannot be made", _try_cgroup, where if nested else "mount them at /sys/fs/cgroup"


def _try_bridge() -> str:
    return _said(["unshare", "--net", "ip", "link", "add", "trial", "type", "bridge"])


def _try_overlay() -> str:
    names.STATE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=names.STATE.parent, prefix="trial-") as folder:
        for name in ("lower", "upper", "work", "root"):
            Path(folder, name).mkdir()
        options = f"lowerdir={folder}/lower,upperdir={folder}/upper,workdir={folder}/work"
        return _said(
            ["unshare", "--mount", "mount", "-t", "overlay", "trial", "-o", options, f"{folder}/root"]
        )


def _try_cgroup() -> str:
    trial = Path("/sys/fs/cgroup")
    trial = (trial if (trial / "cgroup.procs").exists() else trial / "systemd") / "runkit-lab-trial"
    try:
        trial.mkdir(exist_ok=True)
        trial.rmdir()
    except OSError as error:
        return f"{trial}: {error.strerror}"
    return ""


def _nested() -> str:
    """The kind of container that this machine is; "" where it is none."""
    for word in _read("/proc/1/environ").split(b"\0"):
        if word.startswith(b"container="):
            return word.partition(b"=")[2].decode("ascii", "replace") or "unknown"
    return "docker" if Path("/.dockerenv").exists() else ""


def _said(argv: list[str]) -> str:
    done = subprocess.run(argv, capture_output=True, text=True)
    return " ".join(done.stderr.split()) or f"status {done.returncode}" if done.returncode else ""


def _first(path: str) -> str:
    return _read(path).decode("ascii", "replace").strip()


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""
