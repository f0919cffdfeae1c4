"""Docker's configuration file, /etc/docker/daemon.json, as functions from text to text.

It is somebody else's file: what it states stays, and what is missing is added.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from typing import Any


def broken(text: str) -> str:
    """Say why ``text`` is no configuration; "" where it is one. An empty file is one, as docker has it.

    >>> broken('{"debug": tru}')
    'line 1, column 11: Expecting value'
    """
    try:
        document = json.loads(text or "{}")
    except json.JSONDecodeError as error:
        return f"line {error.lineno}, column {error.colno}: {error.msg}"
    except RecursionError:
        return "it is nested too deep"
    return "" if isinstance(document, dict) else "line 1, column 1: not an object"


def merged(text: str, missing: Mapping[str, Any], stated: Mapping[str, Any]) -> str:
    """Return ``text`` with what is ``missing`` filled in, and what is ``stated`` put in any case.

    Objects in it are merged key by key; what is in these is whole: a runtime, or a limit, is somebody's or
    ours. Lists are added to: an element such as ``native.cgroupdriver=cgroupfs`` is there already where one
    with the same words before the "=" is. Where nothing is to be done, every byte stays as it is. Raises
    ValueError where ``text`` is ``broken``.
    """
    document = json.loads(text or "{}")
    result = _put(_put(document, missing, force=False), stated, force=True)
    return text if result == document else json.dumps(result, indent=4) + "\n"


def _put(old: Any, new: Any, *, force: bool, levels: int = 2) -> Any:
    if levels and isinstance(old, dict) and isinstance(new, Mapping):
        result = copy.copy(old)
        for key, value in new.items():
            result[key] = _put(old[key], value, force=force, levels=levels - 1) if key in old else value
        return result
    if isinstance(old, list) and isinstance(new, list):
        return _joined(old, new, force=force)
    return new if force else old


def _joined(old: list[Any], new: list[Any], *, force: bool) -> list[Any]:
    known = {_name(each) for each in new}
    if force:
        return [each for each in old if _name(each) not in known or each in new] + [
            each for each in new if each not in old
        ]
    there = {_name(each) for each in old}
    return old + [each for each in new if _name(each) not in there]


def _name(element: Any) -> str:
    return str(element).partition("=")[0]


class FilterModule:
    """How Ansible finds them."""

    def filters(self) -> dict[str, Callable[..., object]]:
        """Return the filters by name."""
        return {"container_runtime_broken": broken, "container_runtime_merged": merged}
