r"""Turn the bytes of a log into normalized lines, whatever it went through before.

NUL and ANSI codes stripped; ``\n`` and ``\r`` both break lines; the tags that
``mpirun --tag-output`` and ``--timestamp-output`` write (Open MPI 3, 4 and 5) split off into rank and stream;
what is glued to the end of a progress bar a line of its own.
Memory stays bounded whatever the input holds; what had to be dropped or replaced is told as a problem.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Iterator, Sequence
from pathlib import Path

from runner.io import pieces
from runner.io.pieces import BLOCK, LINE_LIMIT
from runner.io.sources import File, Source
from runner.model import Line, Problem

_STAMP = r"\[?[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}\]? ?"
_JOB_AND_RANK = r"\[(?:(?:[^\s\[\]@]{1,255}@)?\d{1,9},)?(\d{1,9})\](?:\[[^\s\[\]]{1,255}\])?"
_TAG = re.compile(f"(?:{_STAMP}(?:{_JOB_AND_RANK})?|{_JOB_AND_RANK})<(stdout|stderr|stddiag)>: ?", re.ASCII)
# The end of a progress bar of tqdm (time, time left, rate) to which another program's line is glued
_BAR = re.compile(r"\[\d{1,4}:\d\d[^\[\]]{0,200}(?:/s|s/)[^\[\]]{0,200}\](?=\S)", re.ASCII)

_Tag = tuple[int | None, str | None]  # rank and stream
_NO_TAG: _Tag = (None, None)


class Log:
    """One log, read in blocks of ``block`` bytes.

    Iterating yields the lines; ``sha256`` and ``problems`` are known when they have ended.

    ``sha256`` is of the bytes as they lie on the disk. Iterating raises UsageError where the source cannot
    be read, or is packed in a way that is not understood.
    """

    def __init__(self, source: Path | Source, name: str, block: int = BLOCK) -> None:
        self.source = File(source) if isinstance(source, Path) else source
        self.name, self.block = name, block
        self.sha256: str | None = None
        self._begin()

    def _begin(self) -> None:
        """Count anew what is told as a problem: how many lines, and the first of them."""
        self._gbk, self._broken, self._long = [0, 0], [0, 0], [0, 0]

    @property
    def size(self) -> int | None:
        """Bytes of the file as it lies there; None for what another process would not reach as well."""
        return self.source.size if isinstance(self.source, File) else None

    def __iter__(self) -> Iterator[Line]:
        with self.source.open() as raw:
            yield from self._lines(pieces.every(raw, self.block))
            self.sha256 = raw.sha256

    def holding(self, words: Sequence[str]) -> Iterator[Line]:
        """Yield the lines that hold one of ``words``, and perhaps others; many times as fast as all lines."""
        with self.source.open() as raw:
            yield from self._lines(pieces.holding(raw, words, self.block))
            self.sha256 = raw.sha256

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What was dropped or replaced while reading."""
        found = []
        if self._gbk[0]:
            text = f"lines in GB2312, not UTF-8: {self._gbk[0]}; read as such"
            found.append(Problem("gbk_text", self._gbk[1], text))
        if self._broken[0]:
            text = f"lines that are neither UTF-8 nor GB2312: {self._broken[0]}; U+FFFD stands for the bytes"
            found.append(Problem("decode_errors", self._broken[1], text))
        if self._long[0]:
            text = f"lines longer than {LINE_LIMIT} bytes: {self._long[0]}; the rest of each was left out"
            found.append(Problem("line_too_long", self._long[1], text))
        return tuple(found)

    def _lines(self, cut: Iterable[tuple[int, bytes]]) -> Iterator[Line]:
        self._begin()
        last, tag = 0, _NO_TAG
        for number, piece in cut:
            tag = tag if number == last else _NO_TAG  # one tag holds for all that CR breaks a line into
            last, tag = number, (yield from _untagged(number, self._text(number, piece), tag))

    def _text(self, number: int, piece: bytes) -> str:
        piece = pieces.without_codes(piece)
        if len(piece) > LINE_LIMIT:
            _count(self._long, number)
            return piece[:LINE_LIMIT].decode("utf-8", "replace")
        try:
            text = piece.decode()
        except UnicodeDecodeError:
            text = self._not_utf8(number, piece)
        return text.removeprefix("\ufeff") if number == 1 else text

    def _not_utf8(self, number: int, piece: bytes) -> str:
        """Read Chinese in GBK, else put U+FFFD for what is unknown; ASCII stays as it is.

        GB2312 is the part of GBK that takes no ASCII byte for half of a sign, as GBK would behind the torn
        end of a UTF-8 progress bar.
        """
        try:
            text = piece.decode("gb2312")
        except UnicodeDecodeError:
            _count(self._broken, number)
            return piece.decode("utf-8", "replace")
        _count(self._gbk, number)
        return text


# --- text ----------------------------------------------------------------------------------


def _untagged(number: int, text: str, tag: _Tag) -> Generator[Line, None, _Tag]:
    """Yield the lines that MPI tags part ``text`` into, of ``tag`` up to the first one; return the last."""
    if ">:" not in text:
        yield from _unglued(number, text, tag)
        return tag
    start = 0
    for found in _TAG.finditer(text):
        if found.start() > start:
            yield from _unglued(number, text[start : found.start()], tag)
        word = found[1] or found[2]
        tag, start = (int(word) if word else None, found[3]), found.end()
    yield from _unglued(number, text[start:], tag)
    return tag


def _unglued(number: int, text: str, tag: _Tag) -> Iterator[Line]:
    """Yield a text, if any, as a line; what follows a progress bar without a break as one of its own."""
    start = 0
    for bar in _BAR.finditer(text) if "/s" in text or "s/" in text else ():
        yield Line(number, text[start : bar.end()], *tag)
        start = bar.end()
    if len(text) > start:
        yield Line(number, text[start:], *tag)


def _count(counter: list[int], number: int) -> None:
    counter[0] += 1
    counter[1] = counter[1] or number
