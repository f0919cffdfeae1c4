"""When and by what a run was made: its id, the time, the versions in play, the commit."""

from __future__ import annotations

import importlib.metadata
import platform
import secrets
import subprocess
from datetime import UTC, datetime

from runner.io.files import ROOT

PACKAGES = ("ansible-core", "ansible-runner", "mpi4py", "numpy", "openmpi")


def new_id() -> str:
    """A run id that sorts by time, such as ``20261127-235912-ab12``."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def now() -> str:
    """The time in UTC, ISO 8601, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def versions() -> dict[str, str]:
    """What this runkit runs on, by name."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "absent"
    return found


def commit() -> str | None:
    """The commit of the checkout, with ``+`` where it has changes; None outside of one."""
    try:
        described = subprocess.run(
            ["git", "-C", str(ROOT), "describe", "--always", "--abbrev=40", "--dirty=+", "--exclude=*"],
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return described.stdout.strip()
