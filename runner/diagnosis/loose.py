"""Reading JSON that a host sent, which may hold anything: what has another form than it should is empty."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def items(value: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The entries of an object that are objects themselves."""
    for key, each in mapping(value).items():
        if isinstance(each, Mapping):
            yield key, each


def mapping(value: Any) -> Mapping[str, Any]:
    """An object, or an empty one."""
    return value if isinstance(value, Mapping) else {}


def rows(value: Any) -> list[Mapping[str, Any]]:
    """The objects in a list."""
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def text(row: Mapping[str, Any], key: str) -> str:
    """Text, or ""."""
    value = row.get(key)
    return value if isinstance(value, str) else ""


def texts(row: Mapping[str, Any], key: str) -> list[str]:
    """The texts in a list."""
    value = row.get(key)
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def number(row: Mapping[str, Any], key: str) -> float | None:
    """A number of moderate size, or None."""
    value = row.get(key)
    fits = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e18
    return float(value) if fits else None  # type: ignore[arg-type] # which "fits" says
