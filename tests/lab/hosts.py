"""A lab in the hands of a test: its hosts, their power, their network, and `python -m runner` on it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "roles" / "lab_host" / "files" / "lab"
# A recap line, as Ansible has it.
RECAP = re.compile(r"^(\S+)\s*: ok=\d+ changed=(\d+) unreachable=(\d+) failed=(\d+) ", re.MULTILINE)


class Lab:
    """The lab of ``folder``, which is made; down again when the block ends."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.name = folder, folder.name
        self.work = folder.parent / "work"  # where runs/ is made
        self.work.mkdir(exist_ok=True)
        shutil.copytree(
            ROOT / "inventory" / "lab", folder, ignore=shutil.ignore_patterns("hosts.yml", ".ssh")
        )

    def __enter__(self) -> Lab:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.runner("lab", "down", check=0)

    # --- runkit ---

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "runner", "-i", str(self.folder), *words]

    def environment(self, **extra: str) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(ROOT), **extra}

    def runner(
        self, *words: str, check: int | None = None, timeout: float = 120, **env: str
    ) -> subprocess.CompletedProcess[str]:
        """``python -m runner`` on this lab; ``check`` is the exit status that it must have."""
        done = subprocess.run(
            self.command(*words),
            cwd=self.work,
            env=self.environment(**env),
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        if check is not None:
            assert done.returncode == check, f"{words}: status {done.returncode}\n{done.stdout}{done.stderr}"
        return done

    def up(self, *words: str) -> None:
        self.runner("lab", "up", *words, check=0, timeout=280)

    def status(self) -> dict[str, Any]:
        """What ``lab status --json`` says."""
        document: dict[str, Any] = json.loads(self.runner("lab", "status", "--json").stdout)
        return document

    def left(self) -> dict[str, Any]:
        """What of the lab there is on this machine, by kind; kinds with nothing are left out."""
        return {kind: what for kind, what in self.status()["left"].items() if what}

    # --- its hosts ---

    @property
    def hosts(self) -> list[str]:
        return list(self._inventory()["hosts"])

    def address(self, host: str) -> str:
        return str(self._inventory()["hosts"][host]["ansible_host"])

    def _inventory(self) -> dict[str, Any]:
        document: dict[str, Any] = yaml.safe_load((self.folder / "hosts.yml").read_text())["all"]
        return document

    def ssh(
        self, host: str, *argv: str, stdin: str | None = None, timeout: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on a host, as its ordinary user; ``argv`` is joined by spaces for the shell there."""
        keys = self.folder / ".ssh"
        options = [
            *("-i", str(keys / "id_ed25519"), "-o", f"UserKnownHostsFile={keys / 'known_hosts'}"),
            *("-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5"),
        ]
        return subprocess.run(
            ["ssh", *options, f"runkit@{self.address(host)}", *argv],
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    def sudo(self, host: str, script: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        """Run a shell script on a host as root."""
        return self.ssh(host, "sudo sh", stdin=script, timeout=timeout)

    # --- power and network ---

    def power_off(self, host: str) -> None:
        """Shut the host down in order, and wait until it is off."""
        self.sudo(host, "systemctl poweroff")
        wait_for(lambda: self.state(host) == "off", f"{host} to be off")

    def state(self, host: str) -> str:
        return {each["name"]: each["state"] for each in self.status()["hosts"]}[host]

    def boot(self) -> None:
        """Boot the hosts that are off; their disks are as they were."""
        self.up()

    def cut(self, host: str) -> None:
        """Take the network cable out: nobody gets a reset."""
        subprocess.run(["ip", "link", "set", f"vb-{host}", "down"], check=True)

    def join(self, host: str) -> None:
        subprocess.run(["ip", "link", "set", f"vb-{host}", "up"], check=True)


def recap(text: str) -> dict[str, tuple[int, int, int]]:
    """Host to changed, unreachable, failed."""
    return {host: tuple(map(int, counts)) for host, *counts in RECAP.findall(text)}  # type: ignore[misc]


def sh(lab: Lab, host: str, script: str, timeout: float = 60) -> str:
    """What a shell script prints as root of a host; the first command that fails fails the test."""
    done = lab.sudo(host, f"set -e\n{script}", timeout)
    assert done.returncode == 0, f"{host}: {script}: {done.stderr}"
    return done.stdout


def wait_for(true: Any, what: str, seconds: float = 30) -> float:
    """Seconds until ``true()`` holds; fails the test where it does not."""
    began = time.monotonic()
    while not true():
        assert time.monotonic() - began < seconds, f"{what}: not within {seconds} s"
        time.sleep(0.1)
    return time.monotonic() - began


def lacks() -> list[str]:
    """What keeps this machine from hosting a lab."""
    done = subprocess.run([sys.executable, PROGRAM, "check"], capture_output=True, text=True)
    # Of this machine too, for the tests: what makes and signs the packages of standins.py.
    mine = [("gpg", "gnupg"), ("dpkg-deb", "dpkg")]
    return done.stderr.splitlines() + [
        f"{name}: missing; install {p}" for name, p in mine if not shutil.which(name)
    ]
