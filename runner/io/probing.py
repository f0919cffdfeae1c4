"""Asking all hosts at once how they are: each runs ``probe.py``, which is sent to it, and answers in JSON.

A host that hangs costs its own deadline, since none waits for another. What a host sends is bounded.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import IO, Any

from runner.errors import UsageError
from runner.io import ssh
from runner.io.files import ROOT
from runner.model import Host
from runner.names import printable

PROBE = ROOT / "roles" / "doctor_probe" / "files" / "probe.py"
START = b'{"schema": "runkit/probe", "version": 1, '  # before it, login scripts may print what they like
CONNECT_S = 15.0  # for a login, beside what the looks take
END_S = 5.0  # for the far end of standard input to end what it started
AT_ONCE = 64
# What ssh says of an sshd with too many logins at once (MaxStartups), such as one that leads to all hosts.
DROPPED = re.compile(r"kex_exchange_identification|Connection (closed|reset)")
AGAIN_S = 1.0
NO_SHELL = 1  # the status of the login shells nologin and false
# Lines that say more than the last one, and what they mean where that is not plain.
TELLING = re.compile(r"PYTHON(?:HOME|PATH) = '|Fatal Python error|can't start new thread")
MEANS = (
    ("can't start new thread", "a limit of the user is too low (ulimit -u, ulimit -v)"),
    ("PYTHONHOME = '", "PYTHONHOME is set, as in /etc/environment"),
)
CANCEL_LOOK_S = 0.2
MOST = 16 << 20  # bytes of an answer, such as twice 4 MB of a job; read, they may take twenty times as many
MOST_SAID = 8192  # bytes of standard error

Running = set[subprocess.Popen[bytes]]
Answers = Mapping[str, Mapping[str, Any] | str]  # host to its document, or to why there is none


@dataclass(frozen=True, slots=True)
class Question:
    """How a host is asked: its variables, the ``request`` for probe.py, seconds for all looks together."""

    host: Host
    values: Mapping[str, Any]
    request: Mapping[str, Any]
    python: str = "python3"
    deadline_s: float = 20.0


def ask(questions: Sequence[Question], cancelled: Callable[[], bool] = lambda: False) -> Answers:
    """Ask every host, all at once; by its name the document of schema runkit/probe, or why there is none.

    Once ``cancelled`` says so, nobody waits for those that have not answered.
    """
    running: Running = set()
    with ThreadPoolExecutor(max(1, min(AT_ONCE, len(questions)))) as pool:
        asked = {each.host.name: pool.submit(_answer, each, running) for each in questions}
        while pending := [each for each in asked.values() if not each.done()]:
            wait(pending, CANCEL_LOOK_S)
            if cancelled():
                pool.shutdown(wait=False, cancel_futures=True)
                for child in tuple(running):
                    _end(child)
        return {name: "not asked" if each.cancelled() else each.result() for name, each in asked.items()}


def _answer(question: Question, running: Running) -> Mapping[str, Any] | str:
    host, seconds = question.host, question.deadline_s + CONNECT_S
    request = json.dumps({**question.request, "deadline_s": question.deadline_s})
    try:
        argv = [sys.executable, "-", request]
        if host.connection != "local":
            # Without a terminal sshd ends nothing where ssh is killed: what hangs there must end by itself.
            words = ["timeout", "-k", "1", f"{seconds:.0f}", question.python, "-", request]
            argv = ssh.command(host, question.values, words, fresh=True)
        until = time.monotonic() + seconds
        status, out, said, times = _try(argv, until, running)
        if status == ssh.FAILED and DROPPED.search(said):
            time.sleep(AGAIN_S)
            status, out, said, times = _try(argv, until, running)
    except (UsageError, OSError) as error:
        return str(error)
    found = document(out, START)
    if found is not None and isinstance(found.get("probes"), dict):
        return {**found, "probes": {**found["probes"], "clock_offset": _clock(found, *times)}}
    if len(out) >= MOST:
        return f"its answer has more than {MOST >> 20} MiB"
    if status is None:
        return f"no answer within {seconds:.0f} s" + (f" ({last})" if (last := _last(said)) else "")
    return _ended(question, status, _telling(said), _last(out.decode("utf-8", "replace")))


def _ended(question: Question, status: int, last: str, printed: str) -> str:
    """Why there is no answer: the last line on standard error, and the last ``printed``."""
    is_far = question.host.connection != "local"
    if status == ssh.FAILED and is_far:
        return ssh.explained(question.host, question.values, last) or "the connection ended"
    if status == NO_SHELL and not last and is_far:  # Python would say why it failed
        said = f"the login shell runs no command: it ended with status {status}"
        return said + (f" ({printed})" if printed else "")
    if status == 0 and not last and is_far:
        last = "no answer; a startup file of the login shell, such as ~/.bashrc, may end it"
        return f"{question.python} ended with status 0 and {last}"
    return f"{question.python} ended with status {status}" + (f": {last}" if last else " and no answer")


def _telling(said: str) -> str:
    """What was said last, with the line before it where sshd gave a reason and hung up."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    if told := [line for line in lines if TELLING.search(line)]:
        means = [text for word, text in MEANS if any(word in line for line in told)]
        return printable("; ".join([*told[-3:], *means])[:600])
    if len(lines) > 1 and lines[-1].startswith("Connection closed by "):
        return printable(f"{lines[-2]}; {lines[-1]}"[:600])
    return _last(said)


def _last(said: str) -> str:
    """The last line that is not blank, as it can be shown."""
    return printable(([line.strip() for line in said.splitlines() if line.strip()] or [""])[-1])


def _try(
    argv: Sequence[str], until: float, running: Running
) -> tuple[int | None, bytes, str, tuple[float, float]]:
    """As ``run_until``; and when it was asked and when its answer was here, by the clock."""
    began = time.time()
    with PROBE.open("rb") as text:
        status, out, said = run_until(argv, until - time.monotonic(), stdin=text, running=running)
    return status, out, said, (began, time.time())


def run_until(
    argv: Sequence[str],
    seconds: float,
    *,
    stdin: IO[bytes] | bytes,
    running: Running | None = None,
    cancelled: Callable[[], bool] = lambda: False,
) -> tuple[int | None, bytes, str]:
    """Exit status (None where it was ended), standard output and standard error.

    ``stdin`` is a file, or bytes: behind these its standard input stays open.
    """
    text, source = (stdin, subprocess.PIPE) if isinstance(stdin, bytes) else (b"", stdin)
    running = set() if running is None else running
    with subprocess.Popen(
        argv, stdin=source, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    ) as child:
        running.add(child)
        try:
            if child.stdin is not None:
                with contextlib.suppress(BrokenPipeError):  # it has ended; what it said tells why
                    child.stdin.write(text)
                    child.stdin.flush()
            out, said = _read(child, time.monotonic() + seconds, cancelled)
            with contextlib.suppress(subprocess.TimeoutExpired):  # it has closed its streams, or is late
                return child.wait(0.2), out, said.decode("utf-8", "replace")
            return None, out, said.decode("utf-8", "replace")
        finally:
            running.discard(child)
            if child.stdin is not None:  # what ends with its input ends all that it started elsewhere
                with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                    child.stdin.close()
                    child.wait(END_S)
            _end(child)


def _read(
    child: subprocess.Popen[bytes], deadline: float, cancelled: Callable[[], bool]
) -> tuple[bytes, bytes]:
    """What it writes until it closes both streams, its deadline, or too much."""
    kept, most = (bytearray(), bytearray()), (MOST, MOST_SAID)
    with selectors.DefaultSelector() as waiting:
        for number, stream in enumerate((child.stdout, child.stderr)):
            assert stream is not None
            waiting.register(stream, selectors.EVENT_READ, number)
        while waiting.get_map() and (left := deadline - time.monotonic()) > 0 and len(kept[0]) < MOST:
            if cancelled():
                break
            for key, _ in waiting.select(min(left, CANCEL_LOOK_S)):
                block = os.read(key.fd, 1 << 16)
                kept[key.data].extend(block)
                del kept[key.data][: max(0, len(kept[key.data]) - most[key.data])]
                if not block:
                    waiting.unregister(key.fileobj)
    return bytes(kept[0]), bytes(kept[1])


def _end(child: subprocess.Popen[bytes]) -> None:
    if child.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)


def document(out: bytes, begins: bytes) -> Mapping[str, Any] | None:
    """The document in what a host printed, None where there is none or it is not whole."""
    start = out.find(begins)
    try:
        found = json.loads(out[start:].decode("utf-8", "replace").partition("\n")[0]) if start >= 0 else None
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _clock(document: Mapping[str, Any], began: float, ended: float) -> Mapping[str, Any]:
    """How far the host's clock is ahead of the one here: at least and at most, in seconds.

    It began to look after it was asked, and ended before its answer was here.
    """
    times = list(_times(document))
    if len(times) != 2:
        return {"argv": ["python", "clock_offset"], "status": None, "why": "missing"}
    bounds = {"least_s": round(times[1] - ended, 3), "most_s": round(times[0] - began, 3)}
    return {"argv": ["python", "clock_offset"], "status": 0, "out": json.dumps(bounds)}


def _times(document: Mapping[str, Any]) -> Iterator[float]:
    for key in ("began", "ended"):
        value = document.get(key)
        if isinstance(value, float | int) and abs(value) < 1e12:
            yield float(value)
