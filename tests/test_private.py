"""What a process has to itself, a folder and an Ansible: none is left by one that was killed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import yaml
from kit import ROOT, wait_for

from runner.io import ansible, private

HOLD = """
import time
from runner.io import private
with private.folder() as own:
    print(own, flush=True)
    time.sleep(99)
"""


def holder(where: Path) -> tuple[subprocess.Popen[str], Path]:
    """A process with a folder of its own."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(where)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_killed_ones_are_swept_and_others_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (lives, of_living), (killed, of_killed) = holder(tmp_path), holder(tmp_path)
    with lives, killed:
        killed.kill()
        killed.wait()
        (of_killed / "secret").write_text("x")
        young, precious = tmp_path / f"{private.PREFIX}young", tmp_path / "precious"
        young.mkdir()
        precious.mkdir()
        (tmp_path / f"{private.PREFIX}link").symlink_to(precious)
        (tmp_path / f"{private.PREFIX}file").write_text("")
        past = time.time() - 61
        for path in (of_living, of_killed, precious, tmp_path / f"{private.PREFIX}file"):
            os.utime(path, (past, past))
        with private.folder() as own:
            assert own.stat().st_mode & 0o777 == 0o700
            assert not of_killed.exists()
        assert not own.exists()
        assert [path.exists() for path in (of_living, young, precious)] == [True] * 3
        assert (tmp_path / f"{private.PREFIX}file").exists()
        lives.kill()


SETPRIVS = {  # what --pdeathsig may be to a host's setpriv; it came with util-linux 2.33
    "it knows it": ("while [ $1 != true ] && [ $1 != {program} ]; do shift; done", "tied"),
    "it does not": ("echo 'setpriv: unrecognized option: pdeathsig' >&2; exit 1", "free"),
}


@pytest.mark.parametrize(("script", "expected"), SETPRIVS.values(), ids=SETPRIVS)
def test_ansible_starts_with_every_setpriv(
    script: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "ansible-playbook"
    program.write_text('#!/bin/sh\necho "${TIED:-free} $@"\n')
    (tmp_path / "setpriv").write_text(f'#!/bin/sh\n{script.format(program=program)}\nTIED=tied exec "$@"\n')
    for path in (program, tmp_path / "setpriv"):
        path.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    (tmp_path / "own").mkdir()
    env = ansible._tethered({"PATH": f"{tmp_path}:{os.environ['PATH']}"}, tmp_path / "own")
    done = subprocess.run(["ansible-playbook", "a b"], env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{expected} a b\n", "")


def test_ansible_ends_with_a_runner_that_was_killed(tmp_path: Path) -> None:
    """The host does not answer: a stand-in for ssh sleeps."""
    (tmp_path / "ssh").write_text("#!/bin/sh\nexec sleep 600\n")
    (tmp_path / "ssh").chmod(0o700)
    host = {"ansible_host": "127.0.0.1", "ansible_ssh_executable": str(tmp_path / "ssh"), "cluster_cards": 1}
    cluster = tmp_path / "cluster"
    cluster.mkdir()
    (cluster / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": {"one": host}}}))

    def at_work() -> list[str]:
        words = [Path("/proc", pid, "cmdline") for pid in os.listdir("/proc") if pid.isdigit()]
        lines = [line.read_bytes() for line in words if line.exists()]
        return [line.decode() for line in lines if b"ansible-playbook" in line and bytes(tmp_path) in line]

    with subprocess.Popen(
        [sys.executable, "-m", "runner", "-i", str(cluster), "provision"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as runner:
        wait_for(at_work, "Ansible to be at work", 30)
        runner.kill()
    wait_for(lambda: not at_work(), "Ansible to be gone", 15)
