"""The README's commands on the rehearsal cluster, run as they stand there, in their order, by root."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hosts import ROOT

SECTION = (ROOT / "README.md").read_text().partition("## A rehearsal cluster")[2].partition("\n## ")[0]
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", SECTION, re.S) for line in block.splitlines()]


@pytest.fixture
def checkout(tmp_path: Path) -> Iterator[Path]:
    """A copy of the project. Its lab has a name that others want: it is ended in any case."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in filter(None, listed.stdout.split("\0")):
        target = tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, target)
    (tmp_path / ".venv").symlink_to(Path(sys.executable).parents[1])
    yield tmp_path
    runner(tmp_path, [sys.executable, "-m", "runner", "-i", "lab", "lab", "down"])


def runner(folder: Path, argv: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a command of the README in ``folder``."""
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "PYTHONPATH": str(folder)}
    return subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, timeout=280)


def test_the_commands_of_the_readme(checkout: Path) -> None:
    printed = {}
    for command in COMMANDS:
        done = runner(checkout, command.removeprefix("sudo ").split())
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        printed[command] = done.stdout
    assert len(printed) == 6
    (bench,) = (text for command, text in printed.items() if " bench " in command)
    assert re.findall(r"^\| +(\d+) \| +[\d.]+ \|$", bench, re.M) == ["1", "8", "32"]
    assert "lab1: " in bench
    assert "lab4: " in bench
