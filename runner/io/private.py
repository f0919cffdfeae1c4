"""A folder that one process has to itself, mode 0700: gone at its end, and after a kill at the next start.

Whoever uses it holds a lock on it, which ends with the process however that ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

PREFIX = "runkit-play-"
YOUNG_S = 60.0  # younger ones may be between being made and being locked


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """Yield the path of a new one, where all temporary files are; those of killed processes are swept."""
    _sweep(Path(tempfile.gettempdir()))
    # What a playbook that was broken off started may write to the end: that is no failure.
    with tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True) as path:
        held = os.open(path, os.O_RDONLY)
        try:
            fcntl.flock(held, fcntl.LOCK_EX)
            yield Path(path)
        finally:
            os.close(held)


def _sweep(where: Path) -> None:
    for path in where.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # somebody else's, locked, or gone by now
            held = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                status = os.fstat(held)
                if status.st_uid == os.getuid() and time.time() - status.st_mtime > YOUNG_S:
                    shutil.rmtree(path)
            finally:
                os.close(held)
