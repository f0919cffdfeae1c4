"""The README's commands, run as they stand there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from kit import ROOT

README = (ROOT / "README.md").read_text()
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", README, re.S) for line in block.splitlines()]
LOGS = Path(os.environ.get("RUNKIT_LOGS", ROOT.parent / "shared" / "logs"))


def run(command: str, home: Path) -> subprocess.CompletedProcess[str]:
    """In a checkout's copy with nothing but what git lists, this environment in the place of its .venv."""
    beside = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    env = {**os.environ, "PATH": beside, "HOME": str(home), "RUNKIT_LOGS": str(LOGS)}
    return subprocess.run(
        ["bash", "-c", command], cwd=home / "checkout", env=env, capture_output=True, text=True
    )


@pytest.fixture
def home(tmp_path: Path) -> Path:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).exists():
            target = tmp_path / "checkout" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target)
    return tmp_path


def test_there_are_commands() -> None:
    assert {"make bench", "make test", "pip install -r requirements.txt"} <= set(COMMANDS)


# Those on the rehearsal cluster are run by tests/lab/test_readme_lab.py.
@pytest.mark.parametrize("command", [each for each in COMMANDS if "runner" in each and " lab " not in each])
def test_command(command: str, home: Path) -> None:
    if "RUNKIT_LOGS" in command and not LOGS.is_dir():
        pytest.skip(f"the public logs are not at {LOGS}")
    done = run(command, home)
    assert done.returncode == 0, done.stderr
    assert "|" in done.stdout or "mpirun" in done.stdout


def test_make_bench(home: Path) -> None:
    """With this environment in the place of the one that it would make; test_pip_install is about that."""
    venv = home / "checkout" / ".venv"
    venv.mkdir()
    for name in ("bin", "lib", "pyvenv.cfg"):
        (venv / name).symlink_to(Path(sys.prefix) / name)
    (venv / "runtime").touch()
    done = run("make bench", home)
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"^\| +(\d+) \| +([\d.]+) \|$", done.stdout, re.M)
    assert [cards for cards, _ in rows] == ["1", "8", "32"]
    assert "share the cores of their machine" in done.stdout


def test_pip_install(home: Path) -> None:
    """Everything that the lock lists can be had for this Python, with the hash it lists."""
    done = run("pip install --dry-run --ignore-installed --no-deps --quiet -r requirements.txt", home)
    assert done.returncode == 0, done.stderr


def test_make_test_is_what_ci_runs() -> None:
    assert (ROOT / ".ci" / "run").read_text().rstrip().endswith("\nmake test\nmake test-lab")
