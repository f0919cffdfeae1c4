"""Work on all cores: in order, with its errors, and with nothing left whatever becomes of the parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.errors import RunkitError, UsageError
from runner.io import workers
from runner.io.workers import SMALL, in_order
from tests.kit import wait_for

ROOT = Path(__file__).parents[1]


def late(number: int) -> tuple[int, int]:
    time.sleep(0.05 if number % 2 == 0 else 0)  # others overtake it
    return number, os.getpid()


def fails(number: int) -> int:
    if number == 3:
        raise UsageError("three")
    if number == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


@pytest.fixture(autouse=True)
def _two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers.os, "sched_getaffinity", lambda _: {0, 1})


def test_results_come_in_order_from_several_processes() -> None:
    found = list(in_order(late, range(20), [SMALL] * 20))
    assert [number for number, _ in found] == list(range(20))
    assert len({pid for _, pid in found} - {os.getpid()}) == 2


@pytest.mark.parametrize("sizes", [[SMALL // 4] * 3, [SMALL, None, SMALL], [9 * SMALL]])
def test_what_does_not_pay_or_cannot_move_is_done_here(sizes: list[int | None]) -> None:
    assert {pid for _, pid in in_order(late, range(len(sizes)), sizes)} == {os.getpid()}


def test_an_error_comes_in_its_turn_and_ends_the_rest() -> None:
    found = in_order(fails, range(5), [SMALL] * 5)
    assert [next(found) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(UsageError, match="three"):
        next(found)


def test_a_process_that_is_killed_is_told_in_a_line() -> None:
    with pytest.raises(RunkitError, match="ended from outside"):
        list(in_order(fails, [5, 6, 7], [SMALL] * 3))


# --- the parent's end ------------------------------------------------------------------------


def children(pid: int) -> set[int]:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return {int(word) for word in path.read_text().split()} if path.exists() else set()


def runs(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.fixture
def reading(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """``parse`` of two logs, each of which takes a minute to read."""
    program = textwrap.dedent(
        """
        import os, signal, sys, time
        from runner import cli, gathering
        from runner.io import workers
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's "&" has it ignored
        workers.os.sched_getaffinity = lambda _: {0, 1}
        def read(log, known):
            time.sleep(60)
        gathering.read = read
        sys.exit(cli.main(["parse", *sys.argv[1:]]))
        """
    )
    logs = [tmp_path / "a.log", tmp_path / "b.log"]
    for log in logs:
        with log.open("wb") as stream:
            stream.truncate(SMALL)
    argv = [sys.executable, "-c", program, *map(str, logs)]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, cwd=ROOT, text=True, stdout=pipe, stderr=pipe, start_new_session=True) as one:
        yield one
        one.kill()


@pytest.mark.parametrize(
    ("number", "everybody", "status"),
    [
        (signal.SIGINT, True, 130),
        (signal.SIGINT, False, 130),
        (signal.SIGTERM, False, -15),
        (signal.SIGKILL, False, -9),
    ],
    ids=["Ctrl-C", "SIGINT to the parent", "SIGTERM", "SIGKILL"],
)
def test_nothing_is_left(reading: subprocess.Popen[str], number: int, everybody: bool, status: int) -> None:
    wait_for(lambda: len(children(reading.pid)) == 2, "two processes")
    begun = children(reading.pid)
    time.sleep(0.3)  # into the work itself
    (os.killpg if everybody else os.kill)(reading.pid, number)
    out, err = reading.communicate(timeout=20)
    assert reading.returncode == status
    assert "Traceback" not in err
    assert err == ("runkit: interrupted\n" if number == signal.SIGINT else "")
    assert out == ""
    wait_for(lambda: not any(runs(pid) for pid in begun), "the end of both")
