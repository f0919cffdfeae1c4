"""The root file systems that hosts start from: made once per release, shared by all, never written again."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import names
from names import LabError
from plan import USER

PACKAGES = (
    *("systemd", "systemd-sysv", "dbus", "openssh-server", "python3", "python3-apt", "iproute2", "sudo"),
    *("ca-certificates",),
)


def path(release: str) -> Path:
    """Where the root file system of a release is; it exists only when it is whole."""
    return names.CACHE / "roots" / release


def make(release: str, mirror: str) -> bool:
    """Make it unless it is there; True where it was made. Raises LabError."""
    path(release).parent.mkdir(parents=True, exist_ok=True)
    with names.locked(path(release).parent):
        if path(release).exists():
            return False
        fresh = path(f"{release}.making")
        shutil.rmtree(fresh, ignore_errors=True)
        argv = ["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", release, str(fresh)]
        log = path(f"{release}.log")
        with log.open("wb") as stream:
            done = subprocess.run([*argv, *([mirror] if mirror else [])], stdout=stream, stderr=stream)
        if done.returncode:
            raise LabError(f"debootstrap of {release} failed: {_reason(log)}; its output is in {log}")
        _furnish(fresh)
        os.rename(fresh, path(release))
        log.unlink()
    return True


def _reason(log: Path) -> str:
    lines = [line for line in log.read_text("utf-8", "replace").splitlines() if line.startswith(("E:", "W:"))]
    return lines[-1][2:].strip() if lines else "without a word"


def _furnish(root: Path) -> None:
    """A host as a data centre hands it over: a user with sudo, SSH; no name, no address, no keys."""
    for key in (root / "etc/ssh").glob("ssh_host_*"):
        key.unlink()
    for name in ("etc/hostname", "etc/resolv.conf", "etc/machine-id"):
        (root / name).unlink(missing_ok=True)
    (root / "etc/machine-id").touch()  # systemd gives each host its own
    shutil.rmtree(root / "var/cache/apt/archives", ignore_errors=True)
    (root / "etc/sudoers.d" / USER).write_text(f"{USER} ALL=(ALL) NOPASSWD: ALL\n")
    (root / "etc/sudoers.d" / USER).chmod(0o440)
    for argv in (
        ["useradd", "--create-home", "--shell", "/bin/bash", USER],
        ["systemctl", "enable", "systemd-networkd", "ssh"],
        # The machine's own, which a host shares and cannot mount.
        ["systemctl", "mask", "sys-kernel-debug.mount", "sys-kernel-tracing.mount"],
    ):
        done = subprocess.run(["chroot", root, *argv], capture_output=True, text=True)
        if done.returncode:
            raise LabError(f"{root}: {' '.join(argv)} failed: {done.stderr.strip()}")
