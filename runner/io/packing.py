"""Unpack gzip, bzip2, xz and zstd while reading: what it is, its first bytes say; memory stays bounded."""

from __future__ import annotations

import bz2
import gzip
import lzma
import sys
import zlib
from collections.abc import Callable
from io import BufferedReader
from typing import Any, Protocol

from runner.errors import UsageError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

UNPACKED_LIMIT = 16 << 30  # bytes that one file may unpack to in all
WINDOW_LOG = 27  # a zstd frame may refer back 128 MiB, what zstd -d allows too
XZ_MEMORY = 160 << 20  # bytes, for a window of 128 MiB as well; what xz -9 packs takes 65 MiB

_PIECE = 1 << 15  # packed bytes taken at a time


class Readable(Protocol):
    """Bytes in their order: ``size`` of them or fewer, none at the end."""

    def read(self, size: int, /) -> bytes: ...


class Budget:
    """What a file may still unpack to, whatever it holds and however often it must be read."""

    def __init__(self, place: str) -> None:
        self.place, self.left = place, UNPACKED_LIMIT

    def spend(self, size: int) -> None:
        """Take ``size`` bytes off. Raises UsageError where too few are left."""
        self.left -= size
        if self.left < 0:
            limit = f"unpacks to more than {UNPACKED_LIMIT >> 30} GiB"
            raise UsageError(f"{self.place}: {limit}; unpack what is needed of it and name that")


def unpacked(raw: BufferedReader[Any], place: str, budget: Budget) -> Readable:
    """``raw`` itself where it is not packed, else what it unpacks to.

    Reading that raises UsageError, which names ``place``, where it is damaged, needs more memory than is
    allowed here, or is too large for ``budget``.
    """
    start = raw.peek(8)
    for magics, kind, stream in _KINDS:
        if start.startswith(magics):
            return _Unpacked(stream(raw), kind, place, budget)
    return raw


class _Unpacked:
    def __init__(self, stream: Readable, kind: str, place: str, budget: Budget) -> None:
        self._stream, self._kind, self._place, self._budget = stream, kind, place, budget

    def read(self, size: int, /) -> bytes:
        try:
            found = self._stream.read(size)
        except (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError, zstd.ZstdError, _Damaged) as error:
            what = f"damaged {self._kind} file, or one that takes more than 128 MiB to unpack"
            raise UsageError(f"{self._place}: {what}: {error}; fetch it again or unpack it first") from error
        self._budget.spend(len(found))
        return found


# --- files of several frames -----------------------------------------------------------------


class _Damaged(Exception):
    """What bzip2 says as an OSError, which is no error of the file system."""


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...

    @property
    def needs_input(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _Frames:
    """Frames one after the other, with zeros between them or not, as the tools of their formats read them."""

    def __init__(self, raw: BufferedReader[Any], new: Callable[[], _Decompressor]) -> None:
        self._raw, self._new, self._frame = raw, new, new()

    def read(self, size: int, /) -> bytes:
        while True:
            data = b""
            if self._frame.eof:
                data = self._next()
                if not data:
                    return b""
                self._frame = self._new()
            elif self._frame.needs_input:
                data = self._raw.read(_PIECE)
                if not data:
                    raise EOFError("it ends too early")
            if found := self._frame.decompress(data, size):
                return found

    def _next(self) -> bytes:
        data = self._frame.unused_data.lstrip(b"\0")
        while not data and (more := self._raw.read(_PIECE)):
            data = more.lstrip(b"\0")
        return data


class _Bzip2:
    """A BZ2Decompressor whose errors can be told from those of a disk."""

    def __init__(self) -> None:
        self._frame = bz2.BZ2Decompressor()

    @property
    def eof(self) -> bool:
        return self._frame.eof

    @property
    def needs_input(self) -> bool:
        return self._frame.needs_input

    @property
    def unused_data(self) -> bytes:
        return self._frame.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        try:
            return self._frame.decompress(data, max_length)
        except OSError as error:
            raise _Damaged(str(error)) from error


def _xz() -> _Decompressor:
    return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_MEMORY)


def _zstd() -> _Decompressor:
    return zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: WINDOW_LOG})


_SKIPPABLE = tuple(
    bytes((0x50 + number, 0x2A, 0x4D, 0x18)) for number in range(16)
)  # zstd: frames of no data
_KINDS: tuple[tuple[tuple[bytes, ...], str, Callable[[BufferedReader[Any]], Readable]], ...] = (
    ((b"\x1f\x8b",), "gzip", lambda raw: gzip.GzipFile(fileobj=raw)),
    ((b"BZh",), "bzip2", lambda raw: _Frames(raw, _Bzip2)),
    ((b"\xfd7zXZ\0",), "xz", lambda raw: _Frames(raw, _xz)),
    ((b"\x28\xb5\x2f\xfd", *_SKIPPABLE), "zstd", lambda raw: _Frames(raw, _zstd)),
)
