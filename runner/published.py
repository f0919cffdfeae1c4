"""Figures as publications print them: which values may stand behind a printed number."""

from __future__ import annotations

import re
import unicodedata
from decimal import ROUND_DOWN, ROUND_HALF_EVEN, ROUND_HALF_UP, Context, Decimal
from math import isfinite

_FIGURE = re.compile(
    r"[-+]?(?:\d{1,3}(?:,\d{3})+(?:\.\d{1,15})?|\d{1,15}(?:\.\d{1,15})?(?:e[-+]?\d{1,2})?)",
    re.ASCII | re.IGNORECASE,
)
SIGNIFICANT = 6  # digits of C's %g, which many a script prints by
_WIDE = Context(prec=64)  # digits: twice what a figure can have

_MARKUP = re.compile(r"\[\^[^\]]{0,99}\]|</?[a-z]{1,9} ?/?>|[*`\u2020\u2021]", re.IGNORECASE)
_LINKED = re.compile(r"\[([^\]]{1,300})\]\([^()]{0,500}\)")
_ABOUT = re.compile(r"[\u2248~\u223c\u7ea6]\s*|\s*(?:\u00b1|\+/-).*", re.DOTALL)
_UNITS = {
    "rate": re.compile(r"\s*[a-z]{1,20} ?/ ?s(?:ec(?:ond)?)?", re.IGNORECASE),
    "time_to_train_s": re.compile(r"\s*(?:s|sec|seconds|\u79d2)", re.IGNORECASE),
    "accuracy": re.compile(r"\s*%"),
    "speed_up": re.compile(r"\s*[x\u00d7\u500d]", re.IGNORECASE),
}
_NOTHING = ("n/a", "na", "none", "oom", "tbd", "\u65e0", "\u6682\u65e0", "\u5f85\u6d4b", "\u5f85\u8865\u5145")


def undressed(text: str, show: str) -> str:
    """A printed figure without markup, footnotes, the unit of what it shows, and words for "about"."""
    text = unicodedata.normalize("NFKC", _LINKED.sub(r"\1", text))
    text = _ABOUT.sub("", _MARKUP.sub("", text)).strip()
    digit = max((at for at, letter in enumerate(text) if letter.isdigit()), default=-1)
    return text[: digit + 1] if _UNITS[show].fullmatch(text, digit + 1) else text


def is_blank(text: str) -> bool:
    """Whether a publication shows so that it has no figure: nothing, dashes of any kind, N/A."""
    text = unicodedata.normalize("NFKC", text).strip().lower()
    return text in _NOTHING or all(letter in "/_" or unicodedata.category(letter) == "Pd" for letter in text)


def figure(text: str) -> Decimal | None:
    """Read a printed figure, with thousands separators or an exponent or without; None where it is none."""
    text = text.strip()
    return Decimal(text.replace(",", "")) if _FIGURE.fullmatch(text) else None


def decimals(printed: Decimal) -> int:
    """How many digits are printed after the decimal point."""
    exponent = printed.as_tuple().exponent
    return -exponent if isinstance(exponent, int) and exponent < 0 else 0


def digits(printed: Decimal) -> int:
    """How many significant digits are printed; the zeros at the end of a whole number may say nothing."""
    text = "".join(map(str, printed.as_tuple().digits)).lstrip("0")
    return len(text if decimals(printed) else text.rstrip("0"))


def shows(value: float, printed: Decimal) -> bool:
    """Whether ``value`` may be printed so: rounded to its digits, cut off after them, or shown by %.6g."""
    if not isfinite(value):
        return False
    exact, grain = Decimal(repr(value)), _grain(printed)
    if abs(exact - printed) <= grain:
        ways = (ROUND_HALF_EVEN, ROUND_HALF_UP, ROUND_DOWN)
        if any(exact.quantize(grain, way, _WIDE) == printed for way in ways):
            return True
    return Decimal(f"{value:.{SIGNIFICANT}g}") == printed


def window(printed: Decimal) -> float:
    """How wide the range of values is that ``shows`` takes: one and a half units of the last digit."""
    return 1.5 * float(_grain(printed))


def _grain(printed: Decimal) -> Decimal:
    """One unit of the last digit that is printed."""
    exponent = printed.as_tuple().exponent
    return Decimal(1).scaleb(exponent if isinstance(exponent, int) else 0)
