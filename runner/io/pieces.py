r"""Cut the bytes of a log into the pieces that ``\n`` and ``\r`` part: all, or those that hold some words.

Nearly all bytes of a large log say nothing to anybody. So a log is read in blocks of whole pieces, all words
are looked for at once in a block, and only the pieces that hold one are cut out of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, Protocol

import hyperscan

LINE_LIMIT = 1 << 16  # bytes kept of a piece; the longest real one seen is 41,861
BLOCK = 1 << 18  # bytes read at a time: few enough to stay in the processor's cache meanwhile

# The codes of terminals; none goes beyond its piece
_ANSI = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\r\n]*(?:\x07|\x1b\\)?|[ -/]*[0-~]?)")
# What no UTF-8 holds: bytes of no use, a sequence too short, too long, of a value that it may not have (Table
# 3-7 of the Unicode Standard), one that the end cuts off
_NOT_UTF8 = (
    *(rb"[\xC0\xC1\xF5-\xFF]", rb"(?:^|[\x00-\x7F])[\x80-\xBF]", rb"[\xC2-\xDF][^\x80-\xBF]"),
    *(rb"\xE0[^\xA0-\xBF]", rb"[\xE1-\xEC\xEE\xEF][^\x80-\xBF]", rb"\xED[^\x80-\x9F]"),
    *(rb"\xF0[^\x90-\xBF]", rb"[\xF1-\xF3][^\x80-\xBF]", rb"\xF4[^\x80-\x8F]"),
    *(rb"[\xE0-\xF4][\x80-\xBF][^\x80-\xBF]", rb"[\xF0-\xF4][\x80-\xBF]{2}[^\x80-\xBF]"),
    *(rb"[\xC2-\xDF][\x80-\xBF]{2}", rb"[\xE0-\xEF][\x80-\xBF]{3}", rb"[\xF0-\xF4][\x80-\xBF]{4}"),
    *(rb"[\xC2-\xF4]\z", rb"[\xE0-\xF4][\x80-\xBF]\z", rb"[\xF0-\xF4][\x80-\xBF]{2}\z"),
)
_REST = re.compile(rb"[^\r\n]*+")


class Stream(Protocol):
    """Bytes to be read on: up to ``size`` at a time, none at the end."""

    def read(self, size: int, /) -> bytes: ...


def every(stream: Stream, size: int) -> Iterator[tuple[int, bytes]]:
    r"""Yield number and bytes of each piece that is not empty; of an overlong one LINE_LIMIT + 1 bytes.

    The number counts from 1 and goes up at ``\n`` alone. ``size`` is that of the blocks.
    """
    number = 1
    for block in _blocks(stream, size):
        yield from _cut(block, number)
        number += _breaks(block)


def holding(stream: Stream, words: Sequence[str], size: int) -> Iterator[tuple[int, bytes]]:
    """Yield what ``every`` does, but for pieces without any of ``words`` that are short enough and UTF-8.

    Those with a tag are there as well, where CR parts others from them. The pieces may have lost their NUL
    and ANSI codes, in the middle of which a word may stand.
    """
    finder = _finder(tuple(words))
    number = 1
    for block in _blocks(stream, size):
        if _has_overlong(block):
            yield from _cut(block, number)
            number += _breaks(block)
            continue
        plain = without_codes(block)
        places = finder(plain) if is_utf8(plain) else sorted([*finder(plain), *_not_ascii(plain)])
        end = 0
        for at in places:
            if at >= end:  # not in the piece that was cut out last
                number += _breaks(plain[end:at])
                start = max(plain.rfind(b"\n", end, at), plain.rfind(b"\r", end, at)) + 1
                if plain[start - 1 : start] == b"\r":
                    yield from ((number, piece) for piece in _tagged(plain, end, start))
                end = next(_REST.finditer(plain, at)).end()
                yield number, plain[start:end]
        number += _breaks(plain[end:])
        yield from ((number, piece) for piece in _tagged(plain, end, len(plain)))


def _tagged(plain: bytes, start: int, end: int) -> Iterator[bytes]:
    """Cut out what may hold an MPI tag for what CR parts from it: of the last line, what was not yet."""
    start = max(start, plain.rfind(b"\n", start, end) + 1)
    while (at := plain.find(b">:", start, end)) >= 0:
        first = max(start, plain.rfind(b"\r", start, at) + 1)
        start = next(_REST.finditer(plain, at)).end()
        yield plain[first:start]


@cache
def _finder(words: tuple[str, ...]) -> Callable[[bytes], list[int]]:
    """Give what finds all words at once: where in a block the last byte of each is, in order."""
    return _scanner([word.encode() for word in words], literal=True)


def _scanner(patterns: Sequence[bytes], **how: Any) -> Callable[[bytes], list[int]]:
    every = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    every.compile(expressions=patterns, **how)

    def found(block: bytes) -> list[int]:
        ends: list[int] = []
        every.scan(block, match_event_handler=lambda word, start, end, flags, context: ends.append(end - 1))
        return sorted(ends)

    return found


def without_codes(data: bytes) -> bytes:
    """Strip NUL and ANSI codes."""
    if b"\0" in data:
        data = data.replace(b"\0", b"")
    return _ANSI.sub(b"", data) if b"\x1b" in data else data


def _blocks(stream: Stream, size: int) -> Iterator[bytes]:
    """Yield the bytes in blocks of whole pieces, but for what exceeds an overlong one."""
    tail = b""
    while chunk := stream.read(size):
        cut = chunk.rfind(b"\n") + 1
        cut = max(cut, chunk.rfind(b"\r", cut) + 1)
        if cut:
            yield b"".join((tail, memoryview(chunk)[:cut]))
            tail = b""
        tail += chunk[cut : cut + LINE_LIMIT + 1 - len(tail)]  # beyond it would be left out anyway
    if tail:
        yield tail


def _cut(block: bytes, number: int) -> Iterator[tuple[int, bytes]]:
    for line in block.split(b"\n"):
        yield from ((number, piece[: LINE_LIMIT + 1]) for piece in line.split(b"\r") if piece)
        number += 1


def _breaks(part: bytes) -> int:
    """Count the lines that end in a part; from one to the next, while ``count`` looks at every byte."""
    return len(part) - len(part.replace(b"\n", b""))


def _has_overlong(block: bytes) -> bool:
    """Whether a piece may be too long."""
    half = LINE_LIMIT // 2  # such a piece covers one of these parts from end to end
    for at in range(0, len(block) - half + 1, half):
        if block.find(b"\n", at, at + half) < 0 and block.find(b"\r", at, at + half) < 0:
            return True
    return False


def is_utf8(block: bytes) -> bool:
    """Whether ``block`` decodes."""
    return block.isascii() or not _broken()(block)


@cache
def _broken() -> Callable[[bytes], list[int]]:
    """Give what finds where bytes are not UTF-8, in a quarter of the time that decoding them takes."""
    patterns = rb"(?:" + rb")|(?:".join(_NOT_UTF8) + rb")"
    return _scanner([patterns], flags=hyperscan.HS_FLAG_DOTALL | hyperscan.HS_FLAG_SINGLEMATCH)


def _not_ascii(block: bytes) -> Iterator[int]:
    """Give where each piece begins that is not ASCII: it may be no UTF-8 either."""
    at = 0
    for line in block.split(b"\n"):
        if not line.isascii():
            for piece in line.split(b"\r"):
                if not piece.isascii():
                    yield at
                at += len(piece) + 1
        else:
            at += len(line) + 1
