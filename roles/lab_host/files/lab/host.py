"""One host: an overlay on its release's root file system, booted by systemd-nspawn in its own namespaces."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

import cgroup
import idmap
import names
import root
import traces
from names import Host, Lab, LabError
from plan import USER

BOOT_S = 60.0  # for SSH to answer; it takes one second on an idle machine, and 32 hosts share it
REBOOT = 133  # status of systemd-nspawn --keep-unit when the host reboots: who started it is to do so again

# Dropped, though worth nothing outside of the user namespace: services that would use them stay away.
DROPPED = "CAP_SYS_TIME,CAP_SYS_MODULE,CAP_SYSLOG,CAP_SYS_RAWIO"
# What a container engine in the host needs beyond systemd-nspawn's own list.
CALLS = "add_key keyctl bpf"


def up(lab: Lab, host: Host) -> bool:
    """The host runs and answers; True where it was booted. Raises LabError."""
    booted = not _is_whole(lab, host)
    if booted:
        traces.kill(lab.name, host.name)  # what a killed systemd-nspawn left
        _disk(lab, host)
        _boot(lab, host)
    deadline = time.monotonic() + BOOT_S
    while not greets(host.address):
        if traces.leader(lab.name, host.name) is None and not traces.inside(lab.name, host.name):
            raise LabError(f"{host.name}: systemd-nspawn ended: {_last_line(lab, host)}")
        if time.monotonic() > deadline:
            text = f"runs, but its SSH server at {host.address} is silent after {BOOT_S:g} s"
            raise LabError(f"{host.name}: {text}; start sshd there, or end the lab: lab down")
        time.sleep(0.05)
    return booted


def _is_whole(lab: Lab, host: Host) -> bool:
    """Whether the host runs, can be started again, and has its end of the cable."""
    cable = Path("/sys/class/net", f"vb-{host.name}")
    runs = traces.leader(lab.name, host.name) is not None
    return runs and traces.is_attended(lab.name, host.name) and cable.exists()


def greets(address: str) -> bool:
    """Whether an SSH server says its version there."""
    try:
        with socket.create_connection((address, 22), timeout=1) as connection:
            connection.settimeout(2)
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def _disk(lab: Lab, host: Host) -> None:
    """Mount the host's disk. A new one is furnished first; one that a host had is not written to."""
    disk = names.disk(lab.name, host.name)
    for name in ("root", "lower"):  # of a host whose shutdown was cut short
        while str(disk / name) in traces.mounts(lab.name):
            subprocess.run(["umount", "--lazy", str(disk / name)], check=True)
    if not (disk / "furnished").exists():
        for name in ("upper", "work"):
            shutil.rmtree(disk / name, ignore_errors=True)
        _furnish(lab, host, disk)
        (disk / "furnished").touch()
    for name in ("root", "lower", "work"):
        (disk / name).mkdir(exist_ok=True)
    try:
        idmap.mount(root.path(host.release), disk / "lower", host.uid, names.UID_COUNT)
    except OSError as error:
        raise LabError(f"{host.name}: its root file system cannot be mounted: {error.strerror}") from error
    options = f"lowerdir={disk / 'lower'},upperdir={disk / 'upper'},workdir={disk / 'work'}"
    argv = ["mount", "-t", "overlay", f"lab-{host.name}", "-o", options, str(disk / "root")]
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode:
        raise LabError(f"{host.name}: its disk cannot be mounted: {done.stderr.strip()}")


def _furnish(lab: Lab, host: Host, disk: Path) -> None:
    """What makes this host itself: name, address, host key, who may log in."""
    key = (Path(lab.folder) / ".ssh" / "id_ed25519.pub").read_text()
    passwd = (root.path(host.release) / "etc/passwd").read_text()
    user = next(int(line.split(":")[2]) for line in passwd.splitlines() if line.startswith(f"{USER}:"))
    files = {
        "etc/hostname": f"{host.name}\n",
        "etc/hosts": f"127.0.0.1 localhost\n127.0.1.1 {host.name}\n",
        "etc/systemd/network/10-host0.network": (
            f"[Match]\nName=host0\n\n[Network]\nAddress={host.address}/24\nLinkLocalAddressing=no\n"
        ),
    }
    keys = {path.name: path.read_text() for path in (disk / "keys").iterdir()}
    files |= {f"etc/ssh/{name}": text for name, text in keys.items()}
    files[f"home/{USER}/.ssh/authorized_keys"] = key
    for name, text in files.items():
        owner = user if name.startswith("home/") else 0
        at = disk / "upper" / name
        _folders(disk / "upper", at.parent, host, user)
        at.write_text(text)
        at.chmod(0o600 if name.endswith("_key") or owner else 0o644)
        os.chown(at, host.uid + owner, host.uid + owner)
    (disk / "docker").mkdir(exist_ok=True)  # a container engine's layers must not lie on an overlay
    os.chown(disk / "docker", host.uid, host.uid)


def _folders(top: Path, folder: Path, host: Host, user: int) -> None:
    """Folders of the upper layer hide those below: owner and mode must be what those have."""
    for path in (top, *(top / parent for parent in reversed(folder.relative_to(top).parents)), folder):
        if not path.exists():
            path.mkdir()
        home = f"home/{USER}" in str(path)
        owner = host.uid + (user if home else 0)
        os.chown(path, owner, owner)
        path.chmod(0o700 if home else 0o755)


def _boot(lab: Lab, host: Host) -> None:
    disk = names.disk(lab.name, host.name)
    argv = [
        *("systemd-nspawn", "--boot", "--quiet", "--register=no", "--keep-unit", f"--machine={host.name}"),
        *(f"--directory={disk / 'root'}", f"--hostname={host.name}", f"--network-bridge={lab.bridge}"),
        *(f"--private-users={host.uid}:{names.UID_COUNT}", "--private-users-ownership=off"),
        *("--capability=all", f"--drop-capability={DROPPED}", f"--system-call-filter={CALLS}"),
        *("--resolv-conf=off", "--timezone=off", "--link-journal=no", "--console=pipe"),
        *(
            "--rlimit=MEMLOCK=8388608:infinity",
            "--rlimit=NOFILE=1024:1048576",
            "--rlimit=STACK=8388608:infinity",
        ),
        f"--bind={disk / 'docker'}:/var/lib/docker",
    ]
    with (disk / "console").open("wb") as console:
        place = cgroup.Place(lab.name, host.name, host.uid)
        cgroup.start(place, argv, {names.MARK: lab.name}, console, again=REBOOT)


def _last_line(lab: Lab, host: Host) -> str:
    text = (names.disk(lab.name, host.name) / "console").read_text("utf-8", "replace")
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "without a word"
