"""The fast way through a log gives what the plain way gives, whatever the bytes and wherever blocks end."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from io import BytesIO
from itertools import product
from pathlib import Path
from typing import Self

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.io.logs import Log
from runner.io.pieces import BLOCK, LINE_LIMIT, is_utf8
from runner.model import Line
from runner.parsers import Family, families
from runner.parsers._engine import Matcher, scan, words_of

PAIRS = sorted((Path(__file__).parent / "parsers").glob("*/*.log"))


class Bytes(BytesIO):
    """A log that lies in memory."""

    def open(self) -> Self:
        return self

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.getvalue()).hexdigest()


def log_of(data: bytes, block: int) -> Log:
    return Log(Bytes(data), "a.log", block)


BREAKS = [b"\n", b"\r", b"\r\n", b"\n\n"]
INSIDE = [
    *(b"runkit ", b"runkit step", b" step=1", b"run", b"kit ", b"a", b" ", b"total_ips : 5.0", b"text>: "),
    *(b"\0", b"\x1b[m", b"\x1b[31", b"\x1b]0;", b"\x07", b"\x1b", b"[1,3]<stderr>:", b"[1,0]<stdout>: "),
    *(b"\xef\xbb\xbf", "中é█".encode(), "中文".encode("gbk"), b"\xff", b"\xe4", b"\xd6"),
]
LONG = [b"x" * (LINE_LIMIT - 1), b"\0" * LINE_LIMIT, b"\x1b[m" * 30_000, b"y" * 140_000]
BLOCKS = st.sampled_from([61, 1009, LINE_LIMIT, BLOCK])
MIXED = st.lists(st.sampled_from(INSIDE + 3 * BREAKS), max_size=60)
WITH_LONG = st.lists(st.sampled_from(INSIDE + 3 * BREAKS + LONG), max_size=30)


@given(MIXED | WITH_LONG, BLOCKS, st.sampled_from([("runkit ", "total_ips", ">:"), ("runkit ", "total_ips")]))
@settings(deadline=None, max_examples=400)
def test_lines_with_a_word_are_all_there_and_the_same(
    parts: list[bytes], block: int, sought: tuple[str, ...]
) -> None:
    wanted, found = (log_of(b"".join(parts), size) for size in (BLOCK, block))
    every, some = list(wanted), list(found.holding(sought))

    def with_word(lines: list[Line]) -> list[Line]:
        return [line for line in lines if any(word in line.text for word in sought)]

    assert with_word(some) == with_word(every)
    assert (found.problems, found.sha256) == (wanted.problems, wanted.sha256)
    left = iter(every)
    assert all(line in left for line in some)  # what is there beyond that is in the log, in this order


LINES = [line for path in PAIRS for line in path.read_bytes().splitlines(keepends=True)]


FAMILIES = tuple(families().values())
WORDS = words_of(FAMILIES)


def found(log: Log, lines: Iterable[Line]) -> object:
    """All that a run is made of."""
    read = [(one.family.name, one.hits, one.touched) for one in scan(lines, FAMILIES)]
    return read, log.problems, log.sha256


@given(st.lists(st.sampled_from(LINES) | st.sampled_from(INSIDE + BREAKS), max_size=80), BLOCKS)
@settings(deadline=None, max_examples=100)
def test_what_is_found_is_the_same(parts: list[bytes], block: int) -> None:
    data = b"".join(parts)
    plain, fast = log_of(data, BLOCK), log_of(data, block)
    assert found(fast, fast.holding(WORDS)) == found(plain, plain)


@pytest.mark.parametrize("path", PAIRS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_what_is_found_in_a_whole_log_is_the_same(path: Path) -> None:
    plain, fast = log_of(path.read_bytes(), BLOCK), log_of(path.read_bytes(), 1009)
    assert found(fast, fast.holding(WORDS)) == found(plain, plain)


def says(family: Family, text: str) -> bool:
    """Whether a line says anything to a family, in whatever section it stands."""
    fitting = Matcher(family).fit(text)
    return bool(fitting and (fitting[1] or fitting[0].end or fitting[0].kind != "note"))


def test_what_says_something_holds_a_word() -> None:
    texts = {line.text for path in PAIRS for line in Log(path, path.name)}
    for family in families().values():
        anywhere = family._replace(rows=tuple(row._replace(within=None) for row in family.rows))
        without = [text for text in texts if not any(word in text for word in family.words)]
        assert [text for text in without if says(anywhere, text)] == [], family.name
        assert [text for text in without if re.search(family.near, text, re.ASCII)] == [], family.name


def test_a_tag_reaches_a_record_behind_skipped_pieces_and_the_end_of_a_block() -> None:
    data = b"[1,3]<stderr>: 10%|#\r" + b"20%|##\r" * 300 + b"runkit step\n" + b"runkit step\n"
    for block in (61, 1009, BLOCK):
        found = [line for line in log_of(data, block).holding(["runkit "]) if "runkit" in line.text]
        assert [(line.number, line.rank) for line in found] == [(1, 3), (2, None)]


EDGES = [0x0A, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xEC, 0xED]
EDGES += [0xEE, 0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xFF]


def decodes(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def test_what_is_utf8_is_what_decodes() -> None:
    """Every sequence of up to three bytes, and continuations of the longest, at the edges of the table."""
    short = [bytes(each) for length in (1, 2, 3) for each in product(EDGES, repeat=length)]
    four = [b"\xf0\x90" + bytes(each) for each in product(EDGES, repeat=3)]
    assert [data for data in (*short, *four) if is_utf8(data) != decodes(data)] == []


@given(st.lists(st.one_of(st.binary(max_size=5), st.text(max_size=3).map(str.encode)), max_size=8))
def test_any_bytes_are_utf8_or_not(parts: list[bytes]) -> None:
    data = b"".join(parts)
    assert is_utf8(data) == decodes(data)
