"""Records to plain JSON data and back, strictly: the dataclasses of ``model`` are the only schema.

``decode`` refuses what ``encode`` cannot have written: unknown or missing keys, other types, NaN.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from runner.errors import UsageError
from runner.names import hint, printable, shown, valued

T = TypeVar("T")
_SCALARS = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}


def encode(value: Any) -> Any:
    """``value`` as JSON data: a record becomes a dict in the order of its fields, a tuple a list."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: encode(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [encode(item) for item in value]
    return value


def decode(kind: type[T], value: Any, place: str) -> T:
    """Make a ``kind`` (a dataclass) of JSON data. ``place`` is the file, for the message.

    Raises UsageError, one line that names the file and the key.
    """
    record: T = _record(kind, value, place, "")
    return record


def _record(kind: Any, value: Any, place: str, key: str) -> Any:
    if not isinstance(value, Mapping):
        raise _wrong(place, key, "a mapping", value)
    hints = _hints(kind)
    for name in value:
        if name not in hints:
            raise UsageError(f"{place}: {_join(key, name)}: unknown key; {hint(name, hints)}")
    for field in dataclasses.fields(kind):
        optional = (
            field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
        )
        if field.name not in value and not optional:
            raise UsageError(f"{place}: {_join(key, field.name)}: is missing")
    return kind(**{name: _value(hints[name], value[name], place, _join(key, name)) for name in value})


@functools.cache
def _hints(kind: type) -> Mapping[str, Any]:
    return typing.get_type_hints(kind)


def _value(kind: Any, value: Any, place: str, key: str) -> Any:
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return value
    if origin is types.UnionType:  # the only one in use: X | None
        return None if value is None else _value(inner[0], value, place, key)
    if origin is tuple:
        if not isinstance(value, list):
            raise _wrong(place, key, "a list", value)
        return tuple(_value(inner[0], item, place, f"{key}[{i}]") for i, item in enumerate(value))
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(value, Mapping):
            raise _wrong(place, key, "a mapping", value)
        return {
            _value(inner[0], name, place, f"{key}: a key"): _value(inner[1], item, place, _join(key, name))
            for name, item in value.items()
        }
    if dataclasses.is_dataclass(kind):
        return _record(kind, value, place, key)
    return _scalar(kind, value, place, key)


def _scalar(kind: type, value: Any, place: str, key: str) -> Any:
    if kind is float and isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53:
        return float(value)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise _wrong(place, key, _SCALARS[kind], value)
    if isinstance(value, float) and not math.isfinite(value):
        raise _wrong(place, key, "a finite number", value)
    return value


def _join(key: str, name: object) -> str:
    return f"{key}.{shown(name)}" if key else shown(name)


def _wrong(place: str, key: str, wanted: str, value: Any) -> UsageError:
    return UsageError(f"{printable(place)}: {key + ': ' if key else ''}must be {wanted}, is {valued(value)}")
