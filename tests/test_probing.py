"""Asking hosts: by the real ssh client where it must fail, by a stand-in that runs here where it must not."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit import wait_for

from runner.diagnosis import views
from runner.diagnosis.model import HostView, Stated
from runner.io import probing
from runner.io.probing import Question
from runner.model import Host

HERE = Host("here", "here", 1, "local")


def question(name: str, deadline_s: float = 20.0, python: str = "python3", **values: Any) -> Question:
    request = {"only": ["kernel", "session"]}
    return Question(Host(name, "127.0.0.1", 1, "ssh"), values, request, python, deadline_s)


def stand_in(folder: Path, before: str = "", command: str = 'exec sh -c "$last"') -> str:
    """A program in the place of ssh that does here what sshd does there."""
    path = folder / "ssh"
    path.write_text(f"#!/bin/sh\nfor last; do :; done\n{before}\n{command}\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def silent() -> Iterator[int]:
    """The port of a server that accepts and never says a word, as an sshd whose machine is out of memory."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        kept = []

        def accept() -> None:
            while True:
                try:
                    kept.append(server.accept()[0])
                except OSError:
                    return

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join(5)
        for each in kept:
            each.close()


def kernel(answer: object) -> str:
    assert isinstance(answer, dict), answer
    return str(answer["probes"]["kernel"]["out"].split()[1])


def test_this_machine_is_asked_without_ssh() -> None:
    found = probing.ask([Question(HERE, {}, {"only": ["kernel"]})])
    assert kernel(found["here"]) == os.uname().release


def test_the_clock_is_held_against_the_one_here() -> None:
    """Of this machine, which has but one: the bounds hold zero, and are as wide as the look took."""
    found = probing.ask([Question(HERE, {}, {"only": []})])["here"]
    assert isinstance(found, dict)
    bounds = json.loads(found["probes"]["clock_offset"]["out"])
    assert bounds["least_s"] <= 0 <= bounds["most_s"]
    assert bounds["most_s"] - bounds["least_s"] < 5


def test_a_host_that_hangs_costs_its_own_deadline(
    silent: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ssh itself would wait for five minutes, as its options say."""
    monkeypatch.setattr(probing, "CONNECT_S", 1.0)
    deaf = {"ansible_port": silent, "ansible_ssh_common_args": "-F none -o ConnectTimeout=300"}
    asked = [
        question("deaf1", 2, **deaf),
        question("well", ansible_ssh_executable=stand_in(tmp_path)),
        question("deaf2", 2, **deaf),
    ]
    began = time.monotonic()
    found = probing.ask(asked)
    assert time.monotonic() - began < 8
    assert list(found) == ["deaf1", "well", "deaf2"]
    assert found["deaf1"] == found["deaf2"] == "no answer within 3 s"
    assert kernel(found["well"]) == os.uname().release


def test_a_python_that_hangs_is_not_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody ends there what ssh started: the stand-in gives it a session of its own, as sshd does."""
    monkeypatch.setattr(probing, "CONNECT_S", 1.0)
    python, mark = tmp_path / "python", tmp_path / "pid"
    python.write_text(f"#!/bin/sh\necho $$ > {mark}\nexec sleep 600\n")
    python.chmod(0o755)
    program = stand_in(tmp_path, command='exec setsid --wait sh -c "$last"')
    found = probing.ask([question("stuck", 1, str(python), ansible_ssh_executable=program)])
    assert str(found["stuck"]).startswith(("no answer within 2 s", f"{python} ended with status 124"))
    there = Path(f"/proc/{mark.read_text().strip()}")
    wait_for(lambda: not there.exists(), "the end of what hangs", 10)


def test_ssh_gives_up_by_itself_on_a_server_that_says_nothing(silent: int) -> None:
    values = {"ansible_port": silent, "ansible_ssh_common_args": "-F none -o ConnectTimeout=1"}
    found = probing.ask([question("deaf", **values)])
    assert "timed out" in str(
        found["deaf"]
    )  # "Connection to ... timed out"; "during banner exchange" elsewhere


def test_a_refused_connection_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    found = probing.ask([question("off", ansible_port=port, ansible_ssh_common_args="-F none")])
    assert "Connection refused" in str(found["off"])


@pytest.mark.parametrize(
    ("before", "command", "expected"),
    [
        ("", "exec sleep 600", "no answer within 3 s"),
        ("", 'echo "Welcome to $0"; exit 0', "python3 ended with status 0 and no answer"),
        ("", "echo 'sh: 1: python3: not found' >&2; exit 127", "status 127: sh: 1: python3: not found"),
        ("", 'echo \'{"schema": "runkit/probe", "version": 1, "probes": {\'', "status 0 and no answer"),
        (
            "",
            "echo 'This account is currently not available.'; exit 1",
            "runs no command: it ended with status 1 (This account is currently not available.)",
        ),
        ("", "exit 1", "the login shell runs no command: it ended with status 1"),
        ("", "printf '\\033[2Jbad' >&2; exit 1", "status 1: \\x1b[2Jbad"),
        ("", "exit 0", "a startup file of the login shell, such as ~/.bashrc, may end it"),
        (
            "",
            "echo 'maintenance until noon' >&2; echo 'Connection closed by 10.0.0.3 port 22' >&2; exit 255",
            "maintenance until noon; Connection closed by 10.0.0.3 port 22",
        ),
        (
            "",
            "printf \"  PYTHONHOME = '/opt/py'\\nFatal Python error: init_fs\\n  <no Python frame>\\n\""
            " >&2; exit 1",
            "status 1: PYTHONHOME = '/opt/py'; Fatal Python error: init_fs; PYTHONHOME is set",
        ),
        ("", 'echo "RuntimeError: can\'t start new thread" >&2; exit 1', "a limit of the user is too low"),
        ("echo 'mail for you'; echo '{}'", 'exec sh -c "$last"', None),
    ],
)
def test_what_a_host_says_instead_of_an_answer(
    before: str, command: str, expected: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probing, "CONNECT_S", 1.0)
    program = stand_in(tmp_path, before, command)
    found = probing.ask([question("odd", 2, ansible_ssh_executable=program)])["odd"]
    if expected is None:
        assert kernel(found) == os.uname().release
    else:
        assert isinstance(found, str)
        assert expected in found


def test_an_endless_answer_is_cut(tmp_path: Path) -> None:
    began = time.monotonic()
    found = probing.ask([question("loud", ansible_ssh_executable=stand_in(tmp_path, command="exec yes"))])
    assert found["loud"] == "its answer has more than 16 MiB"
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(("drops", "expected"), [(1, None), (9, "kex_exchange_identification: ")])
def test_a_login_that_was_dropped_is_tried_once_more(
    drops: int, expected: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by an sshd with too many at once (its MaxStartups): sixty hosts behind one that leads to them."""
    monkeypatch.setattr(probing, "AGAIN_S", 0.1)
    tries = tmp_path / "tries"
    tries.touch()
    dropping = (
        f"echo >> {tries}; [ $(wc -l < {tries}) -gt {drops} ] ||"
        " { echo 'kex_exchange_identification: Connection closed by remote host' >&2; exit 255; }"
    )
    found = probing.ask([question("far", ansible_ssh_executable=stand_in(tmp_path, dropping))])["far"]
    assert tries.read_text() == "\n\n"
    if expected is None:
        assert kernel(found) == os.uname().release
    else:
        assert str(found).startswith(expected)


def test_an_answer_counts_although_the_connection_does_not_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a process that waits for a dead disk cannot be ended, and keeps the session open."""
    monkeypatch.setattr(probing, "CONNECT_S", 1.0)
    program = stand_in(tmp_path, command='sh -c "$last"; exec sleep 600')
    found = probing.ask([question("stuck", 2, ansible_ssh_executable=program)])
    assert kernel(found["stuck"]) == os.uname().release


def test_what_ssh_cannot_use_is_named() -> None:
    found = probing.ask([question("locked", ansible_password="secret")])
    assert "ansible_password" in str(found["locked"])
    assert "secret" not in str(found["locked"])


def test_nobody_waits_after_a_cancellation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "AT_ONCE", 1)  # one is asked, one waits for its turn
    mark = tmp_path / "pid"
    program = stand_in(tmp_path, command=f"echo $$ > {mark}.new; mv {mark}.new {mark}; exec sleep 600")
    asked = [question(name, ansible_ssh_executable=program) for name in ("first", "second")]
    began = time.monotonic()
    found = probing.ask(asked, mark.exists)
    assert time.monotonic() - began < 10
    assert isinstance(found["first"], str)
    assert found["second"] == "not asked"
    assert not Path(f"/proc/{mark.read_text().strip()}").exists()


# --- what is made of an answer -------------------------------------------------------------


def test_a_view_holds_what_a_probe_said() -> None:
    answer = {"argv": ["uname"], "status": 0, "out": '{"a": 1}', "err": "", "seconds": 0.5, "why": None}
    host = views.view("a", {"probes": {"x": answer}}, Stated())
    assert host.probe("x").argv == ("uname",)
    assert host.data("x") == {"a": 1}
    assert (host.probe("y").why, host.text("y"), host.data("y")) == ("missing", "", None)


def test_what_is_said_of_all_hosts_no_host_may_say() -> None:
    """The jobs between hosts are attached to a view by those who started them."""
    answer = {"status": 0, "out": '{"tries": [{}]}', "why": None}
    host = views.view("a", {"probes": {"job": answer, "nccl_job": answer, "kernel": answer}}, Stated())
    assert list(host.probes) == ["kernel"]


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"probes": None},
        {"probes": []},
        {"probes": {"x": None, "y": [], "z": "text"}},
        {
            "probes": {
                "x": {"argv": 3, "status": "0", "out": 5, "err": None, "seconds": "long", "why": "because"}
            }
        },
        {"probes": {"x": {"argv": [["a"]], "status": True, "out": "\ud800" * 10**6, "seconds": 10**400}}},
        {"probes": {"x": {"out": "[" * 100_000, "status": 0, "seconds": float("nan")}}},
    ],
)
def test_an_answer_may_hold_anything(answer: dict[str, Any]) -> None:
    host = views.view("a", answer, Stated())
    assert isinstance(host, HostView)
    probe = host.probe("x")
    assert probe.status in (None, 0)
    assert len(probe.out.encode()) <= views.MOST
    assert host.data("x") is None


def test_evidence_is_one_short_line_that_no_terminal_obeys() -> None:
    shown = views.evidence("a\n\x1b[2J b\t" + "c" * 1000)
    assert shown.startswith("a \\x1b[2J b ccc")
    assert len(shown) <= 303
