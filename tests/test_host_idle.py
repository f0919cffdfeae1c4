"""Who computes on a host: the script of role host_idle, on made-up processes and on real locks."""

from __future__ import annotations

import fcntl
import importlib.util
import json
import os
import pwd
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "roles" / "host_idle" / "files" / "busy.py"
ME = pwd.getpwuid(os.getuid()).pw_name


@pytest.fixture(scope="module")
def busy() -> ModuleType:
    spec = importlib.util.spec_from_file_location("busy", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def process(proc: Path, pid: int, name: bytes, exe: str, opened: list[str], *, arguments: str = "") -> None:
    """A process as /proc shows it; a test cannot make a GPU, and it may not name files of /dev."""
    folder = proc / str(pid)
    (folder / "fd").mkdir(parents=True)
    (folder / "comm").write_bytes(name + b"\n")
    (folder / "cmdline").write_text(arguments)
    (folder / "exe").symlink_to(exe)
    for number, target in enumerate(opened):
        (folder / "fd" / str(number)).symlink_to(target)


@pytest.mark.parametrize(
    ("target", "counts"),
    [
        ("/dev/nvidia0", True),
        ("/dev/nvidia15", True),
        ("/dev/nvidia-uvm", True),
        ("/dev/nvidia0 (deleted)", True),
        ("/dev/nvidiactl", False),
        ("/dev/nvidia-nvswitch0", False),
        ("/dev/nvidia-caps/nvidia-cap1", False),
        ("/home/eve/dev/nvidia0", False),
        ("/dev/nvidia0/x", False),
        ("socket:[1]", False),
    ],
)
def test_what_counts_as_using_a_gpu(busy: ModuleType, tmp_path: Path, target: str, counts: bool) -> None:
    process(tmp_path, 12, b"python3", "/usr/bin/python3.11", ["/dev/null", target])
    assert bool(busy.users(str(tmp_path))) == counts


def test_all_are_named_but_not_their_arguments(busy: ModuleType, tmp_path: Path) -> None:
    process(
        tmp_path, 9, b"trainer", "/opt/trainer", ["/dev/nvidia-uvm", "/dev/nvidia0"], arguments="--token=s3"
    )
    process(tmp_path, 12, b"python3", "/usr/bin/python3.11", ["/dev/nvidia1"])
    assert busy.users(str(tmp_path)) == [
        f"trainer (process 9 of {ME}) uses /dev/nvidia-uvm, /dev/nvidia0; "
        f"python3 (process 12 of {ME}) uses /dev/nvidia1"
    ]


def test_of_many_some_are_named_and_the_rest_counted(busy: ModuleType, tmp_path: Path) -> None:
    for pid in range(100, 108):
        process(tmp_path, pid, b"rank", "/opt/rank", ["/dev/nvidia0"])
    (said,) = busy.users(str(tmp_path))
    assert said.count("rank (process") == 5
    assert said.endswith("; and 3 more do")


@pytest.mark.parametrize(
    ("name", "exe", "counts"),
    [
        (b"nvidia-persiste", "/usr/bin/nvidia-persistenced", False),
        (b"nvidia-persiste", "/usr/bin/nvidia-persistenced (deleted)", False),  # its package was upgraded
        (b"nv-fabricmanage", "/usr/bin/nv-fabricmanager", False),
        (b"nv-hostengine", "/usr/libexec/datacenter-gpu-manager-4/nv-hostengine", False),
        (b"nvidia-persiste", "/home/eve/miner", True),  # a process calls itself what it likes
        (b"nvvs", "/usr/libexec/datacenter-gpu-manager-4/nvvs", True),  # a diagnosis that loads the GPUs
    ],
)
def test_who_only_attends_to_gpus(
    busy: ModuleType, tmp_path: Path, name: bytes, exe: str, counts: bool
) -> None:
    process(tmp_path, 5, name, exe, ["/dev/nvidia0"])
    assert bool(busy.users(str(tmp_path))) == counts


def test_a_hostile_name_is_shown_as_text(busy: ModuleType, tmp_path: Path) -> None:
    process(tmp_path, 5, b"\x1b[2Jok\n\xff{{x}}", "/opt/x", ["/dev/nvidia0"])
    (said,) = busy.users(str(tmp_path))
    assert said.isprintable()
    assert said.startswith("?[2Jok??{{x}} (process 5")


def test_a_process_that_ends_meanwhile_is_passed_over(busy: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()  # neither fd nor comm nor exe
    assert busy.users(str(tmp_path)) == []


# --- runs ----------------------------------------------------------------------------------


def ask(folder: str, login: str = ME) -> list[str]:
    """What the script says as a host runs it: read from standard input."""
    argv = [sys.executable, "-", login, folder]
    done = subprocess.run(argv, input=SCRIPT.read_text(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [said for said in json.loads(done.stdout) if "/dev/nvidia" not in said]


def test_a_run_that_holds_its_lock_is_named(tmp_path: Path) -> None:
    """Held as an agent holds it: exclusively, with its name in it, by another process."""
    lock = tmp_path / "lock"
    assert ask(str(tmp_path)) == []  # no run was ever here
    lock.write_text(json.dumps({"run": "r1\x1b", "pid": 1}))
    assert ask(str(tmp_path)) == []  # its holder was killed
    with lock.open("r+") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        assert ask(str(tmp_path)) == ["run r1? works here"]
        stream.truncate(0)
        assert ask(str(tmp_path)) == ["run ? works here"]  # an agent that has not signed it yet


def test_a_follower_that_looks_at_the_lock_is_no_run(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_SH)
        assert ask(str(tmp_path)) == []


@pytest.mark.parametrize("text", ["[" * 4000, "[1]", "{}", '{"run": 1', "\udcff"])
def test_a_lock_that_says_nonsense(tmp_path: Path, text: str) -> None:
    with (tmp_path / "lock").open("w", errors="surrogateescape") as stream:
        stream.write(text)
        stream.flush()
        fcntl.flock(stream, fcntl.LOCK_EX)
        assert ask(str(tmp_path)) == ["run ? works here"]


def test_what_is_no_lock_file_keeps_nobody_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "lock")
    assert ask(str(tmp_path)) == []
    (tmp_path / "lock").unlink()
    (tmp_path / "lock").symlink_to("/dev/zero")
    assert ask(str(tmp_path)) == []


def test_home_is_that_of_the_user_of_runkit(busy: ModuleType) -> None:
    """The script runs as root, and the runs are those of the user who connects."""
    other = next(each for each in pwd.getpwall() if each.pw_name != ME)
    assert busy.at_home("~/runs", other.pw_name) == f"{other.pw_dir}/runs"
    assert busy.at_home("~", other.pw_name) == other.pw_dir
    assert busy.at_home("/srv/~/runs", other.pw_name) == "/srv/~/runs"
    assert busy.at_home("~/runs", "nobody-here") == "~nobody-here/runs"  # which is nowhere
