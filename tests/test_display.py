"""What a person sees while a run goes on: on a real terminal (a pty), and elsewhere."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import time
from itertools import pairwise

import pytest
from kit import Kit

from runner import progress
from runner.model import Cell, Deadlines


def on_a_terminal(argv: list[str], kit: Kit) -> list[tuple[float, bytes]]:
    """Run on a pty of 100 columns; what it wrote to the terminal, and when."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(kit.folder)
        os.execvpe(argv[0], argv, kit.environment(TERM="xterm", COLUMNS="100"))
    seen = []
    while select.select([terminal], [], [], 60)[0]:
        try:
            block = os.read(terminal, 65536)
        except OSError:  # how a pty says that the other end is closed
            break
        seen.append((time.monotonic(), block))
    os.waitpid(pid, 0)
    os.close(terminal)
    return seen


@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_terminal(kit: Kit) -> None:
    kit.train("--steps", "60")
    seen = on_a_terminal(kit.command("bench", "-w", str(kit.workload), "--cards", "1,2"), kit)
    text = b"".join(block for _, block in seen).decode()
    shown = r"\[2/2\] trainer 2 cards fp32 bs32  step \d+  1,280.0 images/sec  0:0\d left"
    assert re.search(shown, text)
    drawn = [when for when, block in seen if b"step " in block]
    assert len(drawn) >= 8
    between = [later - earlier for earlier, later in pairwise(drawn)]
    assert sorted(between)[len(between) // 2] <= 1.0
    assert "|       2 |       1280.00 |" in text
    assert text.count("\x1b[K") > 8


def test_pipe(kit: Kit) -> None:
    kit.train("--steps", "60")
    done = kit.bench("--cards", "1,2")
    assert "\x1b" not in done.stderr
    assert "\r" not in done.stderr
    said = done.stderr.splitlines()
    assert [line for line in said if line.startswith("[1/2] trainer 1 card fp32 bs32: done in")]
    assert [line for line in said if line.startswith("[2/2] trainer 2 cards fp32 bs32: done in")]


@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_terminal_that_is_held_does_not_end_the_run(kit: Kit) -> None:
    """Ctrl-S blocks the display for longer than the agent waits for its controller."""
    kit.train("--steps", "9999")
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(kit.folder)
        argv = kit.command("bench", "-w", str(kit.workload), "--cards", "1")
        os.execvpe(argv[0], argv, kit.environment(TERM="xterm"))
    while b"step " not in os.read(terminal, 65536):
        pass
    os.write(terminal, b"\x13")
    time.sleep(25)
    assert kit.ranks()
    os.write(terminal, b"\x11")
    os.write(terminal, b"\x03")
    with contextlib.suppress(OSError):
        while os.read(terminal, 65536):
            pass
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 130
    os.close(terminal)
    assert kit.reasons() == {"c01": "stopped on request"}


def cell(cards: int, estimated_s: float) -> Cell:
    return Cell(
        id=f"w.throughput.c{cards:02}.fp32.bs8.r1", workload="w", mode="throughput", cards=cards,
        precision="fp32",
        batch_size=8, repeat=1, state="planned", reason=None, placement=(), argv=(), env={}, hostfile=None,
        unit="images/sec", family="runkit", log_name="l", progress="", deadlines=Deadlines(1, 1, 1),
        estimated_s=estimated_s, target=None,
    )  # fmt: skip


def test_time_left() -> None:
    one, two = cell(1, 40), cell(8, 100)
    view = progress.View((one, two))
    read = lambda _cell, text: progress.Sample(int(text), 50.0, int(text) / 100)  # noqa: E731
    assert progress.left_s(view) == 140
    view = progress.fold(view, {"event": "cell_started", "cell": one.id}, read)
    assert progress.left_s(view) == 140
    view = progress.fold(view, {"event": "progress", "cell": one.id, "line": "25", "seconds": 12.0}, read)
    assert progress.left_s(view) == 12 * 75 / 25 + 100
    assert progress.line(view) == "[1/2] w 1 card fp32 bs8  step 25  50.0 images/sec  2:16 left"
    view = progress.fold(
        view, {"event": "cell_ended", "cell": one.id, "outcome": "exited", "status": 0, "seconds": 48}, read
    )
    assert progress.left_s(view) == 100
    assert progress.ended(view) == "[1/2] w 1 card fp32 bs8: done in 0:48, last rate 50.0 images/sec"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (59.6, "1:00"), (3599, "59:59"), (3600, "1:00:00")]
)
def test_clock(seconds: float, text: str) -> None:
    assert progress.clock(seconds) == text
