"""What every match of a regular expression holds: a text to look for before the expression is tried."""

from __future__ import annotations

import re
from functools import cache

_PIECES = re.compile(
    r"""(?P<open>\((?:\?(?:P<\w+>|<?[=!]|:))?)|(?P<close>\))|(?P<either>\|)
      | (?P<often>[?*+]|\{\d*,?\d*\})[?+]?         # how often the piece before it stands
      | (?P<plain>[^\\\[.^$])|\\(?P<escaped>[^\w\s])  # a character that stands for itself
      | \\.|[.^$]|\[\^?\]?(?:\\.|[^\]\\])*\]       # a class, an anchor, a set
    """,
    re.VERBOSE,
)


class _Group:
    """Of a group in a pattern: the texts that a match of it holds, the last one unfinished."""

    def __init__(self, negative: bool = False) -> None:
        self.texts = [""]
        self.sure = not negative  # a look for what must not be there holds nothing, nor does a choice
        self.inner = -1  # how many texts the group inside that ended last gave; -1 where none did

    def take(self, character: str) -> None:
        self.texts[-1:] = [self.texts[-1] + character] if character else [self.texts[-1], ""]
        self.inner = -1

    def close(self, inside: _Group) -> None:
        given = inside.texts if inside.sure else []
        self.texts += [*given, ""]
        self.inner = len(given)

    def repeat(self, often: str) -> None:
        """The piece before stands so often: what may be absent is not sure."""
        if self.inner < 0:
            self.texts[-1:] = [self.texts[-1][:-1], ""]
        elif often[0] in "?*" or often.startswith(("{0", "{,")):
            del self.texts[len(self.texts) - 1 - self.inner :]
            self.texts.append("")


@cache
def literal(pattern: str) -> str:
    """Give the longest text that is in whatever ``pattern`` matches, as far as is easily seen.

    A line without it need not be matched, and to see that it is not there takes a twentieth of the time.
    """
    groups = [_Group()]
    for piece in _PIECES.finditer(pattern):
        if piece["open"]:
            groups.append(_Group(negative=piece["open"].endswith("!")))
        elif piece["close"]:
            inside = groups.pop()
            groups[-1].close(inside)
        elif piece["often"]:
            groups[-1].repeat(piece["often"])
        elif piece["either"]:
            groups[-1].sure = False
        else:
            groups[-1].take(piece["plain"] or piece["escaped"] or "")
    return max(groups[0].texts, key=len) if groups[0].sure else ""
