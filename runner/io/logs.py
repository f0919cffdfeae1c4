r"""Turn a file or a folder into streams of normalized lines, whatever a log went through before.

Plain or gzip bytes in; NUL and ANSI codes stripped; ``\n`` and ``\r`` both break lines; the tags that
``mpirun --tag-output`` and ``--timestamp-output`` write (Open MPI 3, 4 and 5) split off into rank and stream.
Memory stays bounded whatever the input holds; what had to be dropped or replaced is told as a problem.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import stat
import zlib
from collections.abc import Iterator
from io import BufferedReader, FileIO, RawIOBase
from pathlib import Path
from typing import Any, Protocol

from runner.errors import UsageError
from runner.model import Line, Problem
from runner.names import printable

LINE_LIMIT = 1 << 16  # bytes kept of a line; the longest real one seen is 41,861
CHUNK = 1 << 18  # bytes read at a time
FILES_LIMIT = 10_000  # files of one folder
DEPTH_LIMIT = 32  # folders within folders

_ANSI = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~]?)")
_STAMP = r"\[?[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}\]? ?"
_JOB_AND_RANK = r"\[(?:[^\s\[\]@]{1,255}@)?\d{1,9},(\d{1,9})\](?:\[[^\s\[\]]{1,255}\])?"
_TAG = re.compile(f"(?:{_STAMP}(?:{_JOB_AND_RANK})?|{_JOB_AND_RANK})<(stdout|stderr|stddiag)>: ?", re.ASCII)
_RANK_FILE = re.compile(r"rank-(\d{1,9})\.(stdout|stderr)", re.ASCII)
_PACKED = {b"\x28\xb5\x2f\xfd": "zstd -d", b"\xfd7zXZ\0": "xz -d", b"BZh": "bzip2 -d", b"PK\x03\x04": "unzip"}


class Log:
    """One log file. Iterate once: the lines; ``sha256`` and ``problems`` are known when they have ended.

    ``sha256`` is of the bytes as they lie on the disk. Iterating raises UsageError where ``path`` is not
    a regular file, cannot be read, or is packed in a way that is not understood.
    """

    def __init__(self, path: Path, name: str) -> None:
        self.path, self.name = path, name
        self.sha256: str | None = None
        self._broken: list[int] = [0, 0]  # how many lines were not UTF-8, the first of them
        self._long: list[int] = [0, 0]  # how many lines were too long, the first of them

    def __iter__(self) -> Iterator[Line]:
        hashed = _Hashed(_opened(self.path))
        try:
            with BufferedReader(hashed, CHUNK) as raw:
                for number, piece in _pieces(_unpacked(raw, self.path)):
                    yield from _untagged(number, self._text(number, piece))
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise UsageError(f"{_place(self.path)}: damaged gzip file: {error}; fetch it again") from error
        except OSError as error:
            raise _unreadable(self.path, error) from error
        self.sha256 = hashed.digest.hexdigest()

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What was dropped or replaced while reading."""
        found = []
        if self._broken[0]:
            text = f"lines that are not UTF-8: {self._broken[0]}; U+FFFD stands for the bytes"
            found.append(Problem("decode_errors", self._broken[1], text))
        if self._long[0]:
            text = f"lines longer than {LINE_LIMIT} bytes: {self._long[0]}; the rest of each was left out"
            found.append(Problem("line_too_long", self._long[1], text))
        return tuple(found)

    def _text(self, number: int, piece: bytes) -> str:
        if b"\0" in piece:
            piece = piece.replace(b"\0", b"")
        if b"\x1b" in piece:
            piece = _ANSI.sub(b"", piece)
        if len(piece) > LINE_LIMIT:
            _count(self._long, number)
            return piece[:LINE_LIMIT].decode("utf-8", "replace")
        try:
            text = piece.decode()
        except UnicodeDecodeError:
            text = piece.decode("utf-8", "replace")
            _count(self._broken, number)
        return text.removeprefix("\ufeff") if number == 1 else text


class CellLog:
    """The logs of one cell of a run: ``folder/logs/<host>/rank-NNNN.stdout`` and ``.stderr``.

    Iterate once: rank by rank, stdout before stderr. Rank and stream come from the file names, line numbers
    count within each file.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.problems: tuple[Problem, ...] = ()

    def __iter__(self) -> Iterator[Line]:
        found = []
        for log in walk(self.folder / "logs"):
            match = _RANK_FILE.fullmatch(log.path.name)
            if match is not None:
                found.append((int(match[1]), match[2] == "stderr", log.name, log))
        for rank, is_stderr, name, log in sorted(found, key=lambda entry: entry[:3]):
            stream = "stderr" if is_stderr else "stdout"
            for line in log:
                yield Line(line.number, line.text, rank, stream)
            self.problems += tuple(Problem(p.code, p.line, f"{name}: {p.detail}") for p in log.problems)


def walk(source: Path) -> list[Log]:
    """List the logs that ``source`` names: itself, or every regular file below a folder, by name.

    Below a folder, hidden files, links and what is no regular file are passed over. Raises UsageError where
    a folder cannot be read or holds too much.
    """
    if not source.is_dir():
        return [Log(source, printable(source.name))]
    found: list[Log] = []
    for folder, folders, files in os.walk(source, onerror=_refuse):
        here = Path(folder)
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            path = here / name
            if not name.startswith(".") and stat.S_ISREG(path.lstat().st_mode):
                found.append(Log(path, printable(path.relative_to(source).as_posix())))
        if len(found) > FILES_LIMIT or len(here.relative_to(source).parts) > DEPTH_LIMIT:
            limits = f"more than {FILES_LIMIT} files or {DEPTH_LIMIT} levels"
            raise UsageError(f"{_place(source)}: {limits}; name a folder that holds only logs")
    return sorted(found, key=lambda log: log.name)


# --- bytes ---------------------------------------------------------------------------------


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
        raise _unreadable(path, error) from error
    file = FileIO(handle)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        file.close()
        raise UsageError(f"{_place(path)}: not a regular file; name a log file or a folder of logs")
    return file


def _unpacked(raw: BufferedReader[_Hashed], path: Path) -> _Readable:
    start = raw.peek(512)
    if start.startswith(b"\x1f\x8b"):
        return gzip.GzipFile(fileobj=raw)
    for magic, command in _PACKED.items():
        if start.startswith(magic):
            raise UsageError(f"{_place(path)}: packed; unpack it with {command} first")
    if start[257:262] == b"ustar":
        raise UsageError(f"{_place(path)}: an archive; unpack it with tar -xf and name the folder")
    return raw


def _pieces(stream: _Readable) -> Iterator[tuple[int, bytes]]:
    r"""Yield number and bytes of each line that is not empty; of an overlong one LINE_LIMIT + 1 bytes.

    The number counts from 1 and goes up at ``\n`` alone.
    """
    number, tail = 1, b""
    while chunk := stream.read(CHUNK):
        *lines, tail = (tail + chunk).split(b"\n")
        for line in lines:
            yield from ((number, piece[: LINE_LIMIT + 1]) for piece in line.split(b"\r") if piece)
            number += 1
        *pieces, tail = tail.split(b"\r")
        yield from ((number, piece[: LINE_LIMIT + 1]) for piece in pieces if piece)
        tail = tail[: LINE_LIMIT + 1]  # what lies beyond would be left out anyway
    if tail:
        yield number, tail


# --- text ----------------------------------------------------------------------------------


def _untagged(number: int, text: str) -> Iterator[Line]:
    """Yield the lines in ``text`` as the MPI tags in it part it; what no tag stands before has no rank."""
    if ">:" not in text:
        if text:
            yield Line(number, text)
        return
    rank, stream, start = None, None, 0
    for tag in _TAG.finditer(text):
        if tag.start() > start:
            yield Line(number, text[start : tag.start()], rank, stream)
        word = tag[1] or tag[2]
        rank, stream, start = int(word) if word else None, tag[3], tag.end()
    if len(text) > start:
        yield Line(number, text[start:], rank, stream)


def _count(counter: list[int], number: int) -> None:
    counter[0] += 1
    counter[1] = counter[1] or number


def _place(path: Path) -> str:
    return printable(str(path))


def _refuse(error: OSError) -> None:
    raise _unreadable(Path(os.fsdecode(error.filename)), error) from error


def _unreadable(path: Path, error: OSError) -> UsageError:
    return UsageError(f"{_place(path)}: cannot be read: {error.strerror or error}; name a log file or folder")
