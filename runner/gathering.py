"""Reading the logs that sources name, on all cores, and telling of those without a run."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from runner.errors import UnknownLog, UsageError
from runner.io.logfolders import walk
from runner.io.logs import Log
from runner.io.ranks import RankLog
from runner.io.workers import in_order
from runner.model import LogRun
from runner.names import printable
from runner.parsers import A_WORD, NO_WORD, Known, most_like, parse, words
from runner.steadiness import steadied

SHOWN = 5  # names of files without a run
LOOKED_AT = 500  # lines, where no family knows a word


class Content(NamedTuple):
    """What is in a log: its runs, or why there is none; or why it cannot be read."""

    log: Log | RankLog
    runs: Sequence[LogRun] = ()
    unknown: str | None = None
    error: UsageError | None = None


def read_all(sources: Sequence[str], known: Known) -> Iterator[list[Content]]:
    """Read the logs that each source names, a log, folder or archive; large ones on all cores.

    Among several, one that cannot be read spoils nothing: it is told on standard error and passed over.
    """
    logs = [walk(Path(source)) for source in sources]
    every = [log for of_source in logs for log in of_source]
    contents = in_order(partial(read, known=known), every, [log.size for log in every])
    for source, of_source in zip(sources, logs, strict=True):
        if not of_source:
            print(f"runkit: {printable(source)}: no log is in it", file=sys.stderr)
        read_here = list(islice(contents, len(of_source)))
        yield [one for one in read_here if not _is_passed_over(one, len(every))]


def _is_passed_over(content: Content, of: int) -> bool:
    if content.error is None:
        return False
    if of == 1:
        raise content.error
    print(f"runkit: {content.error}; passed over", file=sys.stderr)
    return True


def read(log: Log | RankLog, known: Known) -> Content:
    """Find the runs in a log, with its hash and what reading it brought up."""
    try:
        runs = parse(log.holding(words(known)), log.name, known)
    except UnknownLog as error:
        return Content(log, unknown=_with_a_line(str(error), log))
    except UsageError as error:
        return Content(log, error=error)
    told = log.problems
    made = [steadied(replace(one, sha256=log.sha256, problems=(*one.problems, *told))) for one in runs]
    return Content(log, made)


def _with_a_line(unknown: str, log: Log | RankLog) -> str:
    """Name a line of a log that no family knows, or only by a word: of the first the most like a record."""
    strange = NO_WORD in unknown or A_WORD in unknown
    like = most_like(islice(log, LOOKED_AT)) if strange else None
    return f"{unknown}; {like}" if like else unknown


def tell_unknown(source: str, unknown: Sequence[tuple[str, str]]) -> None:
    """Say on standard error which logs of ``source`` held no run: why, for one; their names, for many."""
    if len(unknown) == 1:
        print(f"runkit: {unknown[0][1]}", file=sys.stderr)
    elif unknown:
        names = ", ".join(name for name, _ in unknown[:SHOWN]) + (", ..." if len(unknown) > SHOWN else "")
        text = f"no run found in {len(unknown)} files: {names}; name one of them to see why"
        print(f"runkit: {printable(source)}: {text}", file=sys.stderr)
