"""The ssh command line that follows a run, judged by ssh itself: ``ssh -G`` prints what it would do."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from runner.errors import UsageError
from runner.io import ssh
from runner.model import Host

HOST = Host("gpu1", "192.0.2.7", 8, "ssh")


def effective(values: dict[str, Any]) -> dict[str, str]:
    program, *words = ssh.command(HOST, values, ["true"])
    done = subprocess.run([program, "-F", "none", "-G", *words], capture_output=True, text=True, check=True)
    return dict(line.partition(" ")[::2] for line in done.stdout.splitlines())


def test_what_the_inventory_says_is_what_ssh_does(tmp_path: Path) -> None:
    key = tmp_path / "the cluster's"
    key.touch()
    found = effective(
        {
            "ansible_port": 2222,
            "ansible_user": "bench",
            "ansible_ssh_private_key_file": str(key),
            "ansible_ssh_common_args": "-o UserKnownHostsFile='\"/keys/known hosts\"' -o ConnectTimeout=3",
            "ansible_ssh_extra_args": "-o ProxyCommand='nc -X 5 %h %p'",
        }
    )
    expected = {
        "hostname": "192.0.2.7",
        "port": "2222",
        "user": "bench",
        "identityfile": str(key),
        "userknownhostsfile": "/keys/known hosts",
        "proxycommand": "nc -X 5 %h %p",
        "connecttimeout": "3",
    }
    assert {key: found[key] for key in expected} == expected


def test_never_a_question_and_never_a_silent_end() -> None:
    found = effective({"ansible_ssh_common_args": "-o BatchMode=no"})
    expected = {"batchmode": "yes", "stricthostkeychecking": "true", "serveraliveinterval": "5"}
    assert {key: found[key] for key in expected} == expected


def test_arguments_arrive_as_they_are(tmp_path: Path) -> None:
    """sshd hands the command to the user's shell: so does this stand-in."""
    stand_in = tmp_path / "ssh"
    stand_in.write_text('#!/bin/sh\nfor last; do :; done\nexec sh -c "$last"\n')
    stand_in.chmod(0o755)
    argv = ["printf", "%s|", "a b", "$HOME", "it's", ""]
    words = ssh.command(HOST, {"ansible_ssh_executable": str(stand_in)}, argv)
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == "a b|$HOME|it's||"


@pytest.mark.parametrize(
    ("values", "fragment"),
    [
        ({"ansible_password": "secret"}, "gpu1: ansible_password: runkit logs in with a key alone"),
        (
            {"ansible_ssh_common_args": "-F {{ inventory_dir }}/ssh"},
            "ansible_ssh_common_args: must be literal",
        ),
        ({"ansible_user": {"__ansible_vault": "3031"}}, "ansible_user: must be literal"),
    ],
)
def test_what_cannot_be_used_is_named_without_its_value(values: dict[str, Any], fragment: str) -> None:
    with pytest.raises(UsageError) as caught:
        ssh.command(HOST, values, ["true"])
    assert fragment in str(caught.value)
    assert "secret" not in str(caught.value)
