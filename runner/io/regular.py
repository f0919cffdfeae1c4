"""Regular files, opened so that nothing can happen; and texts that people write, of bounded size."""

from __future__ import annotations

import os
import stat
from io import FileIO
from pathlib import Path

from runner.errors import UsageError


def opened(path: Path, place: str, remedy: str) -> FileIO:
    """Open ``path``, if it is a regular file: opening a FIFO or device could wait for ever or do something.

    Raises UsageError with ``place`` and ``remedy``.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        raise UsageError(f"{place}: cannot be read: {error.strerror or error}; {remedy}") from error
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        kind = "is a folder" if stat.S_ISDIR(mode) else "not a regular file"
        raise UsageError(f"{place}: {kind}; {remedy}")
    return FileIO(handle)


def text(path: Path, place: str, limit: int, remedy: str) -> str:
    """Read a text of at most ``limit`` bytes. Raises UsageError where it is larger, not UTF-8, or no file."""
    with opened(path, place, remedy) as file:
        try:
            data = file.read(limit + 1)
        except OSError as error:
            raise UsageError(f"{place}: cannot be read: {error.strerror or error}; {remedy}") from error
    if len(data) > limit:
        raise UsageError(f"{place}: larger than {limit >> 20} MiB; is this the right file?")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{place}: not UTF-8 at byte {error.start}; save it as UTF-8") from error
