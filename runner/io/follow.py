"""Following the agent: its events come in, the controller's sign of life and its wishes go out."""

from __future__ import annotations

import json
import os
import select
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import IO, Any

from runner.errors import HostError

BEAT_S = 1.0
LAST_WORDS = 2000  # bytes of standard error that are looked at


def last_line(errors: IO[bytes]) -> str:
    """What a program said last on its standard error, which went into this file."""
    errors.seek(max(0, errors.seek(0, os.SEEK_END) - LAST_WORDS))
    said = errors.read().decode("utf-8", "replace").strip()
    return said.splitlines()[-1].strip() if said else ""


class Follower:
    """One ``agent.py follow`` process, local or at the other end of an SSH connection.

    The sign of life comes from a thread of its own: a terminal that blocks our output must not end the run.
    """

    def __init__(self, argv: Sequence[str]) -> None:
        self.status: int | None = None
        self.said = ""  # the last line of its standard error, once it has ended
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        try:
            # Its own session: Ctrl-C at the terminal is ours to answer, not its.
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                start_new_session=True,
            )
        except OSError as error:
            raise HostError(f"{argv[0]}: cannot be started: {error.strerror}") from error
        self._rest = b""
        self._done = threading.Event()
        self._beat = threading.Thread(target=self._beats, daemon=True)

    def __enter__(self) -> Follower:
        self._beat.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._beat.join()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        try:
            self.status = self._process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        with self._errors as errors:
            self.said = last_line(errors)

    def events(self, wait_s: float) -> Iterator[dict[str, Any] | None]:
        """Events as they come; None whenever none came for ``wait_s`` seconds. Ends with the agent."""
        assert self._process.stdout is not None
        handle = self._process.stdout.fileno()
        while True:
            if not select.select([handle], [], [], wait_s)[0]:
                yield None
                continue
            block = os.read(handle, 1 << 16)
            if not block:
                return
            *lines, self._rest = (self._rest + block).split(b"\n")
            yield from map(json.loads, lines)

    def say(self, word: str) -> None:
        """``stop`` asks the agent for an orderly end, ``now`` for an end at once."""
        assert self._process.stdin is not None
        try:
            os.write(self._process.stdin.fileno(), f"{word}\n".encode())
        except OSError:  # the agent and its follower have ended meanwhile: nothing to ask for
            self._done.set()

    def _beats(self) -> None:
        while not self._done.is_set():
            self.say("beat")
            self._done.wait(BEAT_S)
