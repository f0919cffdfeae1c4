"""The rehearsal cluster: the program that makes its hosts, and Ansible, which has it do so on every host."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from runner.errors import HostError, UsageError
from runner.io import ansible, yamlfile
from runner.io.files import ROOT

PROGRAM = ROOT / "roles" / "lab_host" / "files" / "lab"


def up(folder: Path, hosts: str, releases: str, say: Callable[[str], None]) -> dict[str, Any]:
    """Make a lab for a cluster's folder, or what is missing of it; returns its plan.

    Raises UsageError where it is another lab that is asked for, HostError where a host does not come up.
    """
    if lacking := lacks():
        raise HostError("; ".join(lacking))
    if not _allows(folder):
        text = "not a rehearsal cluster: no group_vars/all file says cluster_allow_controller: true"
        raise UsageError(f"{folder}: {text}; copy inventory/lab for a lab of your own")
    # Whatever is started from here on carries the mark by which `down` finds it.
    os.environ["RUNKIT_LAB"] = folder.name
    plan: dict[str, Any] = json.loads(
        _do("plan", folder.name, str(folder), hosts, releases, error=UsageError)
    )
    releases_of = sorted({host["release"] for host in plan["hosts"]})
    say(f"lab {folder.name}: {len(plan['hosts'])} hosts, {', '.join(releases_of)}")
    variables = {
        "lab_host_lab": folder.name,
        "lab_host_releases": releases_of,
        "lab_host_mirror": plan["mirror"],
    }
    outcome = ansible.playbook("lab", folder, variables)
    if not outcome.successful:
        raise HostError("; ".join(map(str, outcome.failures)) or outcome.status)
    return plan


def _allows(folder: Path) -> bool:
    """Whether the cluster says that its hosts may be made on this machine."""
    files = sorted((folder / "group_vars" / "all").glob("*.yml"))
    documents = [yamlfile.read(path) for path in files]
    return any(isinstance(each, dict) and each.get("cluster_allow_controller") is True for each in documents)


def lacks() -> list[str]:
    """What stands in the way of a lab on this machine, a line each."""
    done = _program("check")
    return done.stderr.strip().splitlines() if done.returncode else []


def down(folder: Path) -> bool:
    """Leave nothing of the lab of a cluster's folder; True where there was something. Raises HostError."""
    return _do("down", folder.name, str(folder)) == "changed"


def purge() -> None:
    """Remove the caches of all labs. Raises HostError where one is in use."""
    _do("purge")


def status(name: str) -> dict[str, Any]:
    """What there is of a lab, as the kernel tells it."""
    document: dict[str, Any] = json.loads(_do("status", name))
    return document


def _do(*words: str, error: type[UsageError] | type[HostError] = HostError) -> str:
    done = _program(*words)
    if done.returncode:
        raise error(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"lab {words[0]} failed")
    return done.stdout.strip()


def _program(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, PROGRAM, *words], capture_output=True, text=True, check=False)
