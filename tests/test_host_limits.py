"""Role host_limits on this machine, with its files in a folder of the test, where the shell prints things."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from plays import play

LIMITS = ("-l", "-s", "-n")  # of sh: memlock, stack, nofile
ROLE = [{"ansible.builtin.import_role": {"name": "host_limits"}}]


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The shell that Ansible's commands go through: it greets, and complains."""
    path = tmp_path / "shell"
    path.write_text(
        '#!/bin/sh\necho Hello 1 2 from bashrc\necho cannot change locale >&2\nexec /bin/sh "$@"\n'
    )
    path.chmod(0o755)
    monkeypatch.setenv("ANSIBLE_EXECUTABLE", str(path))
    return path


def known(folder: Path) -> dict[str, Any]:
    """What this machine grants anyway, and no file of it."""
    granted = [
        subprocess.run(["sh", "-c", f"ulimit {each}"], capture_output=True, text=True).stdout.strip()
        for each in LIMITS
    ]
    return {
        "__host_limits_granted": granted,
        "__host_limits_systemd": [],
        "__host_limits_file": str(folder / "limits.d/90-runkit.conf"),
    }


@pytest.mark.usefixtures("shell")
def test_a_shell_that_greets_is_a_healthy_one_and_the_folder_is_made(tmp_path: Path) -> None:
    play(tmp_path, ROLE, **known(tmp_path))
    assert "* - memlock " in (tmp_path / "limits.d/90-runkit.conf").read_text()
    assert "changed=0" in play(tmp_path, ROLE, **known(tmp_path))


@pytest.mark.usefixtures("shell")
def test_limits_that_differ_are_told_without_the_greeting(tmp_path: Path) -> None:
    variables = known(tmp_path)
    real, wanted = variables["__host_limits_granted"], ["64", "64", "64"]
    said = play(tmp_path, ROLE, fails=True, **{**variables, "__host_limits_granted": wanted})
    assert f"memlock, stack, nofile {', '.join(real)}, not 64, 64, 64; see that sshd" in said


@pytest.mark.parametrize("files", [0, 1023, 99999999999])
def test_a_number_of_files_that_nobody_could_log_in_with_is_refused(tmp_path: Path, files: int) -> None:
    known_here = {**known(tmp_path), "host_limits_nofile": files, "__host_limits_nofile": files}
    assert f"host_limits_nofile is {files}, and must be from 1024 to " in play(
        tmp_path, ROLE, fails=True, **known_here
    )
    assert not (tmp_path / "limits.d").exists()
