"""Where the bytes of a log come from: a file, whatever it is packed with, opened so that nothing can happen.

Nothing is ever written: what is packed is unpacked while it is read, with bounded memory.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import stat
import zlib
from contextlib import AbstractContextManager
from io import BufferedReader, FileIO, RawIOBase
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from runner.errors import UsageError
from runner.names import printable

CHUNK = 1 << 18  # bytes read at a time

_PACKED = {b"\x28\xb5\x2f\xfd": "zstd -d", b"\xfd7zXZ\0": "xz -d", b"BZh": "bzip2 -d", b"PK\x03\x04": "unzip"}


class Opened(Protocol):
    """A log that is being read: its bytes, unpacked. ``sha256`` is known when they have ended.

    ``sha256`` is of the bytes as they lie there, before they are unpacked. Reading raises UsageError.
    """

    def read(self, size: int, /) -> bytes: ...

    @property
    def sha256(self) -> str: ...


class Source(Protocol):
    """What a log is read from; may be opened again and again. Opening raises UsageError."""

    def open(self) -> AbstractContextManager[Opened]: ...


class File:
    """A file by its path. Raises UsageError where it is not a regular file or cannot be read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def open(self) -> OpenedFile:
        """Open it; reading unpacks it."""
        return OpenedFile(self.path)


class OpenedFile:
    """See Opened."""

    def __init__(self, path: Path) -> None:
        self._path, self._hashed = path, _Hashed(_opened(path))
        self._raw = BufferedReader(self._hashed, CHUNK)
        self._stream: _Readable | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._raw.close()

    def read(self, size: int, /) -> bytes:
        """Read on: up to ``size`` bytes, none at the end."""
        try:
            if self._stream is None:
                self._stream = _unpacked(self._raw, self._path)
            return self._stream.read(size)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise UsageError(f"{place(self._path)}: damaged gzip file: {error}; fetch it again") from error
        except OSError as error:
            raise unreadable(self._path, error) from error

    @property
    def sha256(self) -> str:
        """Of the file as it lies on the disk, once it has been read to its end."""
        return self._hashed.digest.hexdigest()


class _Hashed(RawIOBase):
    """A file that hashes what is read from it."""

    def __init__(self, file: FileIO) -> None:
        super().__init__()
        self.file, self.digest = file, hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        size = self.file.readinto(buffer) or 0
        self.digest.update(memoryview(buffer)[:size])
        return size

    def close(self) -> None:
        self.file.close()
        super().close()


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


def _opened(path: Path) -> FileIO:
    """``path``, if it is a regular file: opening a FIFO or a device could wait for ever or do something."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        raise unreadable(path, error) from error
    file = FileIO(handle)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        file.close()
        raise UsageError(f"{place(path)}: not a regular file; name a log file or a folder of logs")
    return file


def _unpacked(raw: BufferedReader[_Hashed], path: Path) -> _Readable:
    start = raw.peek(512)
    if start.startswith(b"\x1f\x8b"):
        return gzip.GzipFile(fileobj=raw)
    for magic, command in _PACKED.items():
        if start.startswith(magic):
            raise UsageError(f"{place(path)}: packed; unpack it with {command} first")
    if start[257:262] == b"ustar":
        raise UsageError(f"{place(path)}: an archive; unpack it with tar -xf and name the folder")
    return raw


def place(path: Path) -> str:
    """Name a path in a message."""
    return printable(str(path))


def unreadable(path: Path, error: OSError) -> UsageError:
    """Say that a path cannot be read, and why."""
    return UsageError(f"{place(path)}: cannot be read: {error.strerror or error}; name a log file or folder")
