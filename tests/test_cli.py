"""The command line itself: options before and after the command, errors of one line, exit statuses."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from kit import ROOT


def runner(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "runner", *words],
        cwd=ROOT,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("-i", "nowhere", "bench"), id="before the command"),
        pytest.param(("bench", "-i", "nowhere"), id="after the command"),
        pytest.param(("-i", "local", "bench", "-i", "nowhere"), id="the later one counts"),
    ],
)
def test_cluster_option(words: tuple[str, ...]) -> None:
    done = runner(*words)
    assert done.returncode == 2
    assert "nowhere" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_cluster_from_the_environment() -> None:
    assert "nowhere" in runner("bench", RUNKIT_CLUSTER="nowhere").stderr
    assert runner("bench", "-i", "local", "--dry-run", RUNKIT_CLUSTER="nowhere").returncode == 0


def test_debug_shows_the_traceback() -> None:
    assert "Traceback" not in runner("-i", "nowhere", "bench").stderr
    for words in (("--debug", "-i", "nowhere", "bench"), ("bench", "-i", "nowhere", "--debug")):
        assert "Traceback" in runner(*words).stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("bench", "--cards", "33"), "--cards 33: local has 32 slots; ask for at most that many"),
        (("bench", "--cards", "eight"), "--cards eight: eight is not a positive whole number"),
        (("bench", "--cards", "0"), "--cards 0: 0 is not a positive whole number"),
        (("bench", "--cards", ""), "--cards : a value is empty"),
        (("bench", "--cards", "1,,8"), "--cards 1,,8: a value is empty"),
        (("bench", "-w", "digit"), "digits"),
        (("bench", "--precision", "fp61"), "fp16"),
        (("bench", "--mode", "throughputs"), "throughput"),
        (("bench", "--repeat", "1,2"), "--repeat 1,2: one number"),
        (("bench", "--resume", "nowhere"), "nowhere: no such run"),
        (("bench", "--attach", "nowhere", "--cards", "8"), "--cards"),
        (("stop", "nowhere"), "nowhere: no such run"),
        (("bench", "--resume", ""), "RUN: is empty"),
        (("bench", "--attach", ""), "RUN: is empty"),
        (("collect", "nowhere"), "nowhere: no such run"),
        (("stop", "/etc"), "plan.json"),
        (("bench", "--dry-run", "--detach"), "not allowed with"),
        (("tabulate",), "invalid choice"),
    ],
)
def test_usage_errors_are_one_line_and_status_2(words: tuple[str, ...], said: str) -> None:
    done = runner(*words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert said in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    done = subprocess.run(
        ["bash", "-c", "set -o pipefail; $0 -m runner list | head -n 1", sys.executable],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_missing_package_is_named(tmp_path: Path) -> None:
    """A Python without our packages, as /usr/bin/python3 may be: a bare environment has none of them."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    done = subprocess.run(
        [tmp_path / "bare/bin/python", "-m", "runner", "list"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert re.fullmatch(
        r"runkit: the Python package \w+ is missing; pip install -r requirements.txt brings it\n", done.stderr
    )


@pytest.mark.parametrize(
    ("python", "said"),
    [
        (
            "/nowhere/python3",
            "/nowhere/python3 is not installed; on Debian and Ubuntu: apt-get install python3 python3-venv",
        ),
        ("OLD", "is too old, 3.11 or later is needed"),
        ("BARE", "this Python cannot make environments; on Debian and Ubuntu: apt-get install python3-venv"),
    ],
)
def test_what_the_machine_lacks_is_named_with_its_package(tmp_path: Path, python: str, said: str) -> None:
    """``OLD`` and ``BARE`` are stand-ins that answer as a Python 3.9, and as Debian's without venv."""
    old = '#!/bin/sh\n[ "$1" = --version ] && echo Python 3.9.2 && exit\nexit 1\n'
    bare = "#!/bin/sh\ncase $2 in *ensurepip*) exit 1;; esac\n"
    (tmp_path / "OLD").write_text(old)
    (tmp_path / "BARE").write_text(bare)
    for name in ("OLD", "BARE"):
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(
        ["make", f"PYTHON={tmp_path / python}", f"VENV={tmp_path}/venv", "bench"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert said in done.stderr
    assert not (tmp_path / "venv").exists()


@pytest.mark.parametrize(
    "command",
    [
        "--help >/dev/full",
        "list >/dev/full",
        "list >&-",
        "list 2>&-",
        "report nowhere 2>&-",
        "list <&- >&- 2>&-",
    ],
)
def test_streams_that_are_closed_or_full(command: str) -> None:
    # Unbuffered, argparse meets the full disk by itself, and passes over it.
    env = {name: text for name, text in os.environ.items() if name != "PYTHONUNBUFFERED"}
    argv = ["bash", "-c", f"{sys.executable} -m runner {command}"]
    done = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True)
    assert "Traceback" not in done.stderr
    assert "rror" not in done.stdout
    assert len(done.stderr.splitlines()) <= 1
    if "/dev/full" in command:
        assert "No space left on device" in done.stderr
        assert done.returncode == 1
