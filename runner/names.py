"""Names that users type and that become paths: checked, shown safely, and the nearest right spelling.

Stands beside ``model`` and ``errors``, below the layers that use it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

NAME = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII
)  # hosts, clusters, cells, logs: safe as a file name
WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*", re.ASCII)  # parts of a cell id, which dots separate


def is_name(text: object) -> bool:
    """Whether ``text`` may become a file name: letters, digits, ``. _ -``, the first a letter or digit."""
    return isinstance(text, str) and len(text) <= 200 and NAME.fullmatch(text) is not None


def is_word(text: object) -> bool:
    """Whether ``text`` is a name without dots, so that it can be a part of a cell id."""
    return is_name(text) and WORD.fullmatch(str(text)) is not None


def shown(value: object) -> str:
    """Untrusted ``value`` as it may stand in a message: one short line, control characters escaped."""
    text = value if isinstance(value, str) else repr(value)
    safe = printable(text[:200])
    return safe if len(safe) <= 60 else safe[:57] + "..."


def valued(value: object) -> str:
    """Untrusted ``value`` as a message says what it is: text in quotes, an empty value by name."""
    if isinstance(value, str):
        return f'"{shown(value)}"'
    if value is None or isinstance(value, bool):
        return "empty" if value is None else str(value).lower()
    return shown(value)


def printable(text: str) -> str:
    """``text`` with its control characters escaped, so that a terminal shows and does not obey them."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def hint(word: object, known: Iterable[str]) -> str:
    """How to spell it right: ``nearest: cluster_cards``, or what there is where nothing is near."""
    names = sorted(set(known))
    lower = {name.lower(): name for name in names}
    close = get_close_matches(str(word)[:100].lower(), lower, n=1, cutoff=0.6)
    if close:
        return f"nearest: {lower[close[0]]}"
    return f"known: {', '.join(names[:20])}{', ...' if len(names) > 20 else ''}" if names else "there is none"
