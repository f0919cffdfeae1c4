"""The progress display: one line that redraws itself on a terminal, plain lines now and then elsewhere."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TextIO

PLAIN_EVERY_S = 10.0


class Display:
    """Writes to ``stream`` (standard error). A reader that went away ends the display, not the run."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._tty = stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._shown = ""
        self._when = -PLAIN_EVERY_S

    def show(self, line: str) -> None:
        """What is going on now; replaces what was shown before."""
        now = time.monotonic()
        if self._tty:
            self._write(f"\r{line[: self._width()]}\x1b[K")
            self._shown = line
        elif now - self._when >= PLAIN_EVERY_S and line != self._shown:
            self._write(f"{line}\n")
            self._shown, self._when = line, now

    def say(self, line: str) -> None:
        """Something that stays."""
        self.clear()
        self._write(f"{line}\n")
        self._when = time.monotonic()

    def clear(self) -> None:
        """Leave an empty line behind where one redraws itself."""
        if self._tty and self._shown:
            self._write("\r\x1b[K")
            self._shown = ""

    def _width(self) -> int:
        with contextlib.suppress(OSError, ValueError):
            return (os.get_terminal_size(self._stream.fileno()).columns or 80) - 1
        return 79

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(text)
            self._stream.flush()
