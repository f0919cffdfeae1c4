"""The shim: one rank's own record, and its output in files of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from kit import ROOT

from runner.io.rundir import RunDir

SHIM = ROOT / "roles" / "bench_agent" / "files" / "shim.sh"
RANK = {"OMPI_COMM_WORLD_RANK": "13", "OMPI_COMM_WORLD_LOCAL_RANK": "5", "OMPI_COMM_WORLD_SIZE": "16"}


def run(folder: Path, shell: str, *command: str, **env: str) -> subprocess.CompletedProcess[str]:
    (folder / "host").write_text("lab1\n")
    return subprocess.run(
        [shell, str(SHIM), "c", *command],
        cwd=folder,
        env={"PATH": os.environ["PATH"], **env},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("shell", ["sh", "bash", "dash", "busybox"])
def test_record_and_output(tmp_path: Path, shell: str) -> None:
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not on this machine")
    script = 'echo "$$"; echo "$1" >&2'
    done = run(tmp_path, shell, "sh", "-c", script, "x", 'a  "b" $HOME *', **RANK, CUDA_VISIBLE_DEVICES="5,6")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    (record,) = RunDir(tmp_path).ranks("c")
    assert [record[key] for key in ("host", "rank", "local_rank", "world_size")] == ["lab1", 13, 5, 16]
    assert (record["devices"], record["hostname"]) == ("5,6", os.uname().nodename)
    shm = os.statvfs("/dev/shm")
    assert record["shm_bytes"] == shm.f_blocks * shm.f_frsize
    folder = tmp_path / "cells" / "c" / "logs" / "lab1"
    assert (folder / "rank-0013.stdout").read_text() == f"{record['pid']}\n"
    assert (folder / "rank-0013.stderr").read_text() == 'a  "b" $HOME *\n'


def test_limits_are_those_of_the_rank(tmp_path: Path) -> None:
    (tmp_path / "host").write_text("lab1\n")
    subprocess.run(["bash", "-c", f"ulimit -n 77 -l 64; exec sh '{SHIM}' c true"], cwd=tmp_path, check=True)
    (record,) = RunDir(tmp_path).ranks("c")
    assert (record["nofile"], record["memlock_kib"], record["devices"]) == (77, 64, None)


@pytest.mark.parametrize(
    ("rank", "name"), [("0", "rank-0000"), ("999", "rank-0999"), ("12345", "rank-12345")]
)
def test_names(tmp_path: Path, rank: str, name: str) -> None:
    run(tmp_path, "sh", "true", PMIX_RANK=rank)
    assert (tmp_path / "cells" / "c" / "logs" / "lab1" / f"{name}.txt").exists()


def test_host_that_nobody_named(tmp_path: Path) -> None:
    """As on the other hosts of a cell that is started by hand."""
    subprocess.run(["sh", str(SHIM), "c", "true"], cwd=tmp_path, check=True)
    (record,) = RunDir(tmp_path).ranks("c")
    assert record["host"] == os.uname().nodename


def test_command_that_is_not_there(tmp_path: Path) -> None:
    done = run(tmp_path, "sh", "/nowhere/python", "train.py")
    assert done.returncode == 127
    ((who, said),) = RunDir(tmp_path).last_words("c")
    assert who == "rank 0"
    assert "/nowhere/python: not found" in said


# As Open MPI 4.1.4 said it when the connection to a host broke.
LOST = """\
--------------------------------------------------------------------------
ORTE has lost communication with a remote daemon.

  HNP daemon   : [[27090,0],0] on node lab1
  Remote daemon: [[27090,0],2] on node 10.213.2.13

This is usually due to either a failure of the TCP network
--------------------------------------------------------------------------
"""
PEER = """\
--------------------------------------------------------------------------
An MPI communication peer process has unexpectedly disconnected.  This

  Local PID:  4893
  Peer host:  10.213.2.13
--------------------------------------------------------------------------
[lab1:04865] 1 more process has sent help message help-mpi-btl-tcp.txt / peer hung up
[lab1:04865] Set MCA parameter "orte_base_help_aggregate" to 0 to see all help / error messages
"""


@pytest.mark.parametrize(
    ("said", "last"),
    [
        (LOST + PEER, "lost its daemon on 10.213.2.13"),
        (PEER, "Peer host:  10.213.2.13"),
        (PEER.splitlines()[-1], ""),
    ],
)
def test_what_a_launcher_says_of_its_own_help_is_not_its_last_word(
    said: str, last: str, tmp_path: Path
) -> None:
    path = tmp_path / "cells" / "c" / "logs" / "launcher.stderr"
    path.parent.mkdir(parents=True)
    path.write_text(said)
    assert dict(RunDir(tmp_path).last_words("c")) == ({"launcher": last} if last else {})


def test_shellcheck() -> None:
    if not shutil.which("shellcheck"):
        pytest.skip("shellcheck is not on this machine")
    said = subprocess.run(
        ["shellcheck", SHIM, ROOT / "tools" / "venv.sh", ROOT / ".ci" / "run"], capture_output=True, text=True
    )
    assert said.stdout == ""
