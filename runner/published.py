"""Figures as publications print them: which values may stand behind a printed number."""

from __future__ import annotations

import re
from decimal import ROUND_DOWN, ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal
from math import isfinite

_FIGURE = re.compile(r"[-+]?(?:\d{1,3}(?:,\d{3})+|\d{1,15})(?:\.\d{1,15})?", re.ASCII)
SIGNIFICANT = 6  # digits of C's %g, which many a script prints by


def figure(text: str) -> Decimal | None:
    """Read a printed figure, with or without thousands separators; None where it is none."""
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
    exact, grain = Decimal(repr(value)), Decimal(1).scaleb(-decimals(printed))
    ways = (ROUND_HALF_EVEN, ROUND_HALF_UP, ROUND_DOWN)
    if any(exact.quantize(grain, way) == printed for way in ways):
        return True
    return Decimal(f"{value:.{SIGNIFICANT}g}") == printed


def window(printed: Decimal) -> float:
    """How wide the range of values is that ``shows`` takes: one and a half units of the last digit."""
    return 1.5 * 10.0 ** -decimals(printed)
