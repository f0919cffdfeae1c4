"""Claims from a published report in Markdown: its tables, and the logs that it links.

A table counts where a row says how many cards (``8``, ``8卡``, ``GPU=8,BS=4``), in its first column or in
one for that, and a column says what it shows: a throughput, a time to train, an accuracy, a speed-up, or a
setting such as ``AMP(BS=4)``; or the other way round, where the columns are the cards. What neither says is
taken from the words above the table. A link belongs to a figure where it stands in its cell, or where its
words, or else the name of its file, say the same cards, precision and batch size. English and Chinese.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

from runner.claims import Claim
from runner.errors import UsageError
from runner.parsers import name_says, same_precision

_LINK = re.compile(r"\[([^\[\]\n]{1,300})\]\(\s*<?([^()\s<>]{1,500})>?(?:\s+[\"'][^\"'\n]{0,300}[\"'])?\s*\)")
_BY_NAME = re.compile(r"\[([^\[\]\n]{1,300})\]\[([^\]\n]{0,300})\]")
_NAMED = re.compile(r"\s{0,3}\[([^\]\n^][^\]\n]{0,299})\]:\s*<?([^\s<>]{1,500})>?.*")
_RULED = re.compile(r"\|?(?:\s*:?-+:?\s*\|)+(?:\s*:?-+:?)?")
LIMIT = 2000  # figures, or links: each is held against each
_COUNTED = re.compile(r"\d{1,6}", re.ASCII)
_FILE = re.compile(r"[^/]{1,200}\.(?:log|txt|json|out|err|gz|zst|xz|bz2)|[^/.]{1,200}", re.IGNORECASE)

_CARDS = (
    re.compile(r"(?<![\w.])(\d{1,6}) ?(?:卡|cards?\b|gpus?\b)", re.IGNORECASE),
    re.compile(r"\bgpus? ?[=x] ?(\d{1,6})\b", re.IGNORECASE),
)
_ONE_CARD = re.compile(r"单卡|single[- ](?:card|gpu)", re.IGNORECASE)
_BATCH = re.compile(r"(?:\bbs|batch[ _-]?size|samples_per_gpu) ?[=:]? ?(\d{1,7})(?!\d)", re.IGNORECASE)
_PRECISION = re.compile(r"(?<![a-z0-9])(fp32|fp16|tf32|bf16|amp)(?![a-z0-9])", re.IGNORECASE)
_UNIT = re.compile(r"[(\uff08]([a-z]{1,20} ?/ ?s(?:ec(?:ond)?)?)[)\uff09]", re.IGNORECASE)
_CARDS_HEAD = re.compile(r"\W*(?:卡数?|(?:number of |num[_ ])?(?:cards?|gpus?)|gpu ?数)\W*", re.IGNORECASE)
_BATCH_HEAD = re.compile(r"\W*(?:bs|batch[ _-]?size|samples_per_gpu)\W*", re.IGNORECASE)
_SHOWS = (
    ("speed_up", re.compile(r"加速比|speed[- ]?up", re.IGNORECASE)),
    ("accuracy", re.compile(r"准确率|精度\(%\)|accuracy|top-?1|miou", re.IGNORECASE)),
    ("time_to_train_s", re.compile(r"time ?(?:2|to) ?train|训练时间", re.IGNORECASE)),
    ("rate", re.compile(r"吞吐|throughput|\bips\b|/ ?s(?:ec)?\b", re.IGNORECASE)),
)
_UNITS = {"speed_up": "x", "accuracy": "%", "time_to_train_s": "s"}


class _Said(NamedTuple):
    """What words say of a figure; None where they say nothing."""

    cards: int | None = None
    precision: str | None = None
    batch_size: int | None = None
    show: str | None = None
    unit: str | None = None

    def over(self, other: _Said) -> _Said:
        """What these words say, and where they say nothing, what ``other`` does."""
        return _Said(
            self.cards if self.cards is not None else other.cards,
            self.precision or other.precision,
            self.batch_size if self.batch_size is not None else other.batch_size,
            self.show or other.show,
            self.unit or other.unit,
        )


class Link(NamedTuple):
    """A linked log: the name of its file, and what the words of the link say."""

    name: str
    said: _Said


def claims_of(text: str, place: str) -> list[Claim]:
    """Find the claims in a report, in order, each with the name of the log that is linked for it, or none.

    Raises UsageError where there are more than LIMIT.
    """
    lines = text.splitlines()
    links = list(islice(_links(lines), LIMIT + 1))
    stated = list(islice(_claims(lines), LIMIT + 1))
    if max(len(links), len(stated)) > LIMIT:
        raise UsageError(f"{place}: more than {LIMIT} figures or links; split it")
    found = []
    linked: dict[tuple[object, ...], Link] = {}  # many figures may be of few settings
    for number, show, claim in stated:
        own = next(filter(None, (_file(path) for _, path in _LINK.findall(claim.published))), None)
        setting = (claim.cards, claim.batch_size, claim.precision, show)
        if not own and setting not in linked:
            linked[setting] = _linked(claim, show, links)
        link = Link(own, _Said()) if own else linked[setting]
        batch = claim.batch_size or link.said.batch_size
        found.append(replace(claim, log=link.name, batch_size=batch, place=f"{place}: line {number}"))
    return found


def _claims(lines: Sequence[str]) -> Iterator[tuple[int, str, Claim]]:
    above = _Said()
    at = 0
    while at < len(lines):
        if at + 1 < len(lines) and "|" in lines[at] and _RULED.fullmatch(lines[at + 1].strip()):
            end = next((row for row in range(at + 2, len(lines)) if "|" not in lines[row]), len(lines))
            yield from _table([*_cells_of(lines, at, end)], above)
            at = end
            continue
        if lines[at].strip():
            said = _said(lines[at])
            above = said if lines[at].lstrip().startswith("#") else said.over(above)
        at += 1


def _cells_of(lines: Sequence[str], start: int, end: int) -> Iterator[tuple[int, list[str]]]:
    for at in (start, *range(start + 2, end)):
        yield at + 1, [cell.strip() for cell in lines[at].strip().strip("|").split("|")]


def _table(rows: Sequence[tuple[int, list[str]]], above: _Said) -> Iterator[tuple[int, str, Claim]]:
    (_, heads), *body = rows
    columns = [_said(head) for head in heads]
    framed = above._replace(cards=None)
    counted = any(map(_CARDS_HEAD.fullmatch, heads))
    for number, cells in body:
        row = _row(heads, columns, cells, counted)
        for at, (head, column, cell) in enumerate(zip(heads, columns, cells, strict=False)):
            if _is_figure(at, head, column, row):
                said = row.over(column).over(framed)
                show = column.show or "rate"
                yield number, show, _claim(cell, show, said, head)


def _row(heads: Sequence[str], columns: Sequence[_Said], cells: Sequence[str], counted: bool) -> _Said:
    """What a row says of all its figures: its first cell, and the columns of cards, precision, batch size.

    ``counted``: a column has the cards, so that a number in the first is something else.
    """
    said = _Said()
    for at, (head, column, cell) in enumerate(zip(heads, columns, cells, strict=False)):
        number = int(cell) if _COUNTED.fullmatch(cell) else None
        if _CARDS_HEAD.fullmatch(head):
            said = said.over(_Said(cards=number or _said(cell).cards))
        elif _BATCH_HEAD.fullmatch(head):
            said = said.over(_Said(batch_size=number))
        elif at == 0:
            bare = None if counted else number
            said = said.over(_said(cell)._replace(show=None).over(_Said(cards=bare)))
        elif not _says_anything(column) and number is None:
            said = said.over(_Said(precision=_said(cell).precision))
    return said


def _is_figure(at: int, head: str, column: _Said, row: _Said) -> bool:
    if _CARDS_HEAD.fullmatch(head) or _BATCH_HEAD.fullmatch(head):
        return False
    if row.cards is None:  # of a table whose columns are the cards
        return at > 0 and column.cards is not None and (row.precision or row.batch_size) is not None
    shown = (column.show or column.precision) is not None
    return shown or (at > 0 and row.batch_size is not None and column.cards is None)


def _claim(cell: str, show: str, said: _Said, head: str) -> Claim:
    framework = re.sub(r"\]\(.*|\[", "", head) if not _says_anything(_said(head)) else None
    return Claim(
        place="",
        log="",
        published=cell,
        unit=_UNITS.get(show, said.unit),
        framework=framework,
        cards=said.cards,
        precision=said.precision,
        batch_size=said.batch_size,
    )


def _says_anything(said: _Said) -> bool:
    return any(one is not None for one in said)


def _said(text: str) -> _Said:
    """Read what words say. Two different precisions or batch sizes say nothing."""
    cards = next((int(found[1]) for form in _CARDS if (found := form.search(text))), None)
    if cards is None and _ONE_CARD.search(text):
        cards = 1
    precisions = {found.lower() for found in _PRECISION.findall(text)}
    batches = {int(found) for found in _BATCH.findall(text)}
    unit = _UNIT.search(text)
    return _Said(
        cards,
        precisions.pop() if len(precisions) == 1 else None,
        batches.pop() if len(batches) == 1 else None,
        next((show for show, words in _SHOWS if words.search(text)), None),
        unit[1] if unit else None,
    )


def _links(lines: Sequence[str]) -> Iterator[Link]:
    paths = {found[1].lower(): found[2] for line in lines if (found := _NAMED.fullmatch(line))}
    for line in lines:
        by_name = [(words, paths.get((name or words).lower(), "")) for words, name in _BY_NAME.findall(line)]
        for words, path in (*_LINK.findall(line), *by_name):
            name = _file(path)
            if not name:
                continue
            named = name_says(name)
            by_file = _Said(
                int(named["cards"]) if "cards" in named else None,
                named.get("precision"),
                int(named["batch_size"]) if "batch_size" in named else None,
            )
            said = _said(words).over(by_file)
            if said.cards is not None:
                yield Link(name, said)


def _file(path: str) -> str:
    """The name of the file that a link leads to; nothing where it is no log beside the report."""
    name = path.partition("#")[0].rpartition("/")[2]
    return name if "://" not in path and _FILE.fullmatch(name) else ""


def _linked(claim: Claim, show: str, links: Sequence[Link]) -> Link:
    """The log linked for a figure: of those that say nothing else, the one that says most."""

    def fits(link: Link) -> bool:
        said = link.said
        return (
            said.cards == claim.cards
            and (None in (said.batch_size, claim.batch_size) or said.batch_size == claim.batch_size)
            and (None in (said.precision, claim.precision) or same_precision(said.precision, claim.precision))
            and not (said.show == "accuracy" and show != "accuracy")
        )

    def worth(link: Link) -> tuple[bool, int]:
        return link.said.show == show, sum(one is not None for one in link.said)

    return max(filter(fits, links), key=worth, default=Link("", _Said()))
