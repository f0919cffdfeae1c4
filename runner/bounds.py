"""What every key and value of a workload file must be, whatever it is for: short, printable, of a sane size.

Here once, before anything is made of them: what follows may show, compare and multiply them without a care.
"""

from __future__ import annotations

from typing import Any

from runner.names import shown

LONGEST = 4096  # characters of a text; a kernel takes 128 KiB as one argument
MOST = 512  # items of a list or mapping
LARGEST = 10**15  # of a number


def problem(value: Any) -> str | None:
    """Say what is wrong with a document, the first thing found; None where it is right."""
    parts: list[tuple[Any, tuple[Any, ...]]] = [(value, ())]
    while parts:
        part, path = parts.pop()
        if not isinstance(part, dict | list):
            text = _of_scalar(part)
        elif len(part) > MOST:
            text = f"must have at most {MOST} items"
        elif isinstance(part, list):
            text = None
            parts += [(item, (*path, index)) for index, item in enumerate(part)]
        else:
            text = next((f"a key {text}" for name in part if (text := _of_scalar(name))), None)
            parts += [(item, (*path, name)) for name, item in part.items()]
        if text:
            return f"{_joined(path)}: {text}" if path else text
    return None


def _joined(path: tuple[Any, ...]) -> str:
    words = [f"[{part}]" if isinstance(part, int) else f".{shown(part)}" for part in path]
    return "".join(words).removeprefix(".")


def _of_scalar(value: Any) -> str | None:
    if isinstance(value, str) and len(value) > LONGEST:
        return f"must have at most {LONGEST} characters, begins with {shown(value)}"
    if isinstance(value, str) and not value.isprintable():
        return f"must be one line of printable text, is {shown(value)}; >- folds a long one"
    if isinstance(value, int | float) and LARGEST < abs(value) < float("inf"):
        return f"must be a number up to {LARGEST:.0e}"
    return None
