"""The catalogue: the mapping of a workload file becomes a Workload, or one line that says what is wrong.

A workload file is data. ``{name}`` in it is replaced from the cell and the cluster, see ``PLACEHOLDERS``;
there is no other substitution, and no brace means anything else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from runner import records
from runner.errors import UsageError
from runner.launch import LAUNCHERS
from runner.model import Container, Mode, Variant, Workload
from runner.names import hint, is_name, is_word, shown

MODES = ("throughput", "time_to_train", "accuracy")
PLACEHOLDERS = {
    "python": "the ranks' Python",
    "files": "the folder of the workload's files on the hosts",
    "cards": "cards of the cell, all hosts together",
    "hosts": "hosts of the cell",
    "precision": "precision of the cell",
    "batch_size": "batch size per card",
    "global_batch": "batch size of all cards together",
    "mode": "mode of the cell",
    "target": "accuracy to reach, in [0, 1]",
    "data": "the folder of the data sets on the hosts",
    "image": "the container image, behind the cluster's registry",
    "devices": "the cards of a host that the cell uses, such as 0,1,2",
    "cards_here": "cards of the cell on each of its hosts",
    "node_rank": "which of the cell's hosts it is, counted from 0",
    "master": "address of the launch host",
    "port": "the first TCP port that the framework's own launcher may take there",
    "addresses": "addresses of the cell's hosts, with commas",
    "logs": "the folder inside the container that comes home with the logs",
    "scratch": "a folder inside the container that is new for each cell",
}
IN_LOG_NAME = ("cards", "hosts", "precision", "batch_size", "global_batch", "mode")
_BRACES = re.compile(r"\{([^{}]*)\}|[{}]")
_MOUNT = re.compile(r"(?:\{data\}|/)[^:]*:/[^:]*(?::ro)?")
_ARCHITECTURE = re.compile(r"sm_[1-9][0-9]{1,2}")


def workload(name: str, document: Mapping[str, Any], families: Sequence[str], path: str) -> Workload:
    """Make the Workload called ``name`` of the ``document`` in the file ``path``.

    ``families`` are the log families there are. Raises UsageError that names the file and the key.
    """
    if not is_word(name):
        raise UsageError(f"{path}: a workload's name has letters, digits, _ and -; rename the file")
    for key in ("name", "path"):
        if key in document:
            raise UsageError(f"{path}: {key}: unknown key; the file itself says it; remove the line")
    made = records.decode(Workload, {**_completed(document), "name": name, "path": path}, path)
    problem = next(_problems(made, families), None)
    if problem:
        raise UsageError(f"{path}: {problem}")
    return made


def fill(text: str, values: Mapping[str, str]) -> str:
    """Replace each ``{name}`` of ``text`` by its value; ``values`` must have all of them."""
    return _BRACES.sub(lambda found: values[found.group(1)], text)


def matching(made: Workload, mode: str, cards: int, precision: str) -> list[int]:
    """Return the indices of the variants that match; a cell is served by exactly one."""
    return [i for i, variant in enumerate(made.variants) if _matches(variant, mode, cards, precision)]


def _matches(variant: Variant, mode: str, cards: int, precision: str) -> bool:
    pairs = ((mode, variant.modes), (cards, variant.cards), (precision, variant.precisions))
    return all(not allowed or value in allowed for value, allowed in pairs)


def _completed(document: Mapping[str, Any]) -> dict[str, Any]:
    """Bring the file's form to the record's: modes by name, a variant matches all it is silent about."""
    modes, variants = document.get("modes"), document.get("variants")
    done = dict(document)
    if isinstance(modes, Mapping):
        done["modes"] = [_mode(name, body) for name, body in modes.items()]
    if isinstance(variants, list):
        done["variants"] = [_over({"modes": [], "cards": [], "precisions": []}, item) for item in variants]
    return done


def _mode(name: Any, body: Any) -> Any:
    made = _over({"name": name}, body)
    estimates = made.get("estimated_s") if isinstance(made, Mapping) else None
    if not isinstance(estimates, Mapping) or not estimates:
        return made
    longest = max((seconds for seconds in estimates.values() if isinstance(seconds, int | float)), default=0)
    by_cards = {str(cards): seconds for cards, seconds in estimates.items()}
    return {**made, "estimated_s": longest, "estimates": by_cards}


def _over(silent: dict[str, Any], item: Any) -> Any:
    return {**silent, **item} if isinstance(item, Mapping) else item


def _problems(made: Workload, families: Sequence[str]) -> Iterator[str]:
    """Say what is wrong beyond the types, the first problem first."""
    yield from _list_problems(made)
    yield from _text_problems(made)
    yield from _mode_problems(made)
    if made.family not in families:
        yield f"family: {shown(made.family)} is unknown; {hint(made.family, families)}"
    yield from _image_problems(made)
    for index, variant in enumerate(made.variants):
        yield from _choice_problems(f"variants[{index}]", variant, made)
        yield from _argv_problems(f"variants[{index}].argv", variant, made)
    yield from _match_problems(made)


def _list_problems(made: Workload) -> Iterator[str]:
    lists: dict[str, tuple[Any, ...]] = {
        "precisions": made.precisions,
        "batch_sizes": made.batch_sizes,
        "cards": made.cards,
        "modes": made.modes,
        "variants": made.variants,
    }
    for key, values in lists.items():
        if not values or any(value in values[:place] for place, value in enumerate(values)):
            yield f"{key}: must name at least one, and none twice"
    numbers = {"batch_sizes": made.batch_sizes, "cards": made.cards}
    for index, variant in enumerate(made.variants):
        numbers[f"variants[{index}].cards"] = variant.cards
    for key, counts in numbers.items():
        if any(count < 1 for count in counts):
            yield f"{key}: must be positive whole numbers"


def _text_problems(made: Workload) -> Iterator[str]:
    for key in ("title", "framework", "model", "unit"):
        text = getattr(made, key)
        if not text.strip() or not text.isprintable():
            yield f"{key}: must be one line of printable text, is {shown(text)}"
    for text in (made.image.name, made.image.base) if made.image else ():
        if not text.isprintable():
            yield f"image: {shown(text)}: must be one line of printable text"
    for word in made.precisions:
        if not is_word(word):
            yield f"precisions: {shown(word)}: use letters, digits, _ and -"
    yield from _brace_problems("log_name", made.log_name, IN_LOG_NAME)
    if not is_name(_BRACES.sub("x", made.log_name)):
        yield f"log_name: {shown(made.log_name)}: must be a file name of letters, digits, . _ -"


def _mode_problems(made: Workload) -> Iterator[str]:
    for mode in made.modes:
        if mode.name not in MODES:
            yield f"modes.{shown(mode.name)}: unknown mode; {hint(mode.name, MODES)}"
        yield from _estimate_problems(mode, made)
        if mode.target is not None and not 0 < mode.target <= 1:
            yield f"modes.{mode.name}.target: must be an accuracy in (0, 1], is {mode.target:g}"
    for key, seconds in records.encode(made.deadlines).items():
        if seconds <= 0:
            yield f"deadlines.{key}: must be positive seconds"


def _estimate_problems(mode: Mode, made: Workload) -> Iterator[str]:
    if mode.estimated_s <= 0 or any(seconds <= 0 for seconds in mode.estimates.values()):
        yield f"modes.{mode.name}.estimated_s: must be positive seconds"
    for key in mode.estimates:
        count, _, precision = key.partition(" ")
        if not count.isdigit() or (precision and precision not in made.precisions):
            yield f"modes.{mode.name}.estimated_s.{shown(key)}: write CARDS, or CARDS PRECISION"


def _choice_problems(key: str, variant: Variant, made: Workload) -> Iterator[str]:
    choices: tuple[tuple[str, tuple[str, ...], Sequence[str]], ...] = (
        ("launcher", (variant.launcher,), tuple(LAUNCHERS)),
        ("modes", variant.modes, [mode.name for mode in made.modes]),
        ("precisions", variant.precisions, made.precisions),
    )
    for field, values, known in choices:
        for value in values:
            if value not in known:
                yield f"{key}.{field}: {shown(value)} is unknown here; {hint(value, known)}"


def _image_problems(made: Workload) -> Iterator[str]:
    """What a workload that runs in containers must state, and where braces may stand in it."""
    contained = any(LAUNCHERS[v.launcher].contained for v in made.variants if v.launcher in LAUNCHERS)
    for key in ("sources", "image", "container"):
        if contained and not getattr(made, key):
            yield f"{key}: is missing; a variant of this workload runs in a container"
    yield from _container_problems(made.container) if made.container else ()
    for i, argv in enumerate(made.image.build if made.image else ()):
        for word in argv:
            yield from _brace_problems(f"image.build[{i}]", word, ("image",))
    for word in made.limits.architectures:
        if not _ARCHITECTURE.fullmatch(word):
            yield f"limits.architectures: {shown(word)}: write it as CUDA does, such as sm_70"


def _container_problems(container: Container) -> Iterator[str]:
    for i, text in enumerate(container.mounts):
        yield from _brace_problems(f"container.mounts[{i}]", text, PLACEHOLDERS)
        if not _MOUNT.fullmatch(text):
            yield f"container.mounts[{i}]: {shown(text)}: write HOST:INSIDE or HOST:INSIDE:ro, full paths"
    for name, text in container.env.items():
        if not name.isidentifier() or not name.isascii():
            yield f"container.env: {shown(name)}: must be a name of letters, digits and _"
        yield from _brace_problems(f"container.env.{name}", text, PLACEHOLDERS)


def _argv_problems(key: str, variant: Variant, made: Workload) -> Iterator[str]:
    if not variant.argv:
        yield f"{key}: is empty; write the command as a list"
    served = [mode for mode in made.modes if not variant.modes or mode.name in variant.modes]
    aimless = [mode.name for mode in served if mode.target is None]
    for index, word in enumerate(variant.argv):
        yield from _brace_problems(f"{key}[{index}]", word, PLACEHOLDERS)
        if "{target}" in word and aimless:
            yield f"{key}[{index}]: mode {aimless[0]} has no target; give it one, or a variant of its own"
        if not word.isprintable():
            yield f"{key}[{index}]: must be one line of printable text, is {shown(word)}"


def _brace_problems(key: str, text: str, known: Iterable[str]) -> Iterator[str]:
    for found in _BRACES.finditer(text):
        if found.group(1) is None:
            yield f"{key}: {shown(text)}: a brace stands alone; write {{name}}"
        elif found.group(1) not in known:
            yield f"{key}: {shown(found.group(0))} is unknown; {hint(found.group(1), known)}"


def _match_problems(made: Workload) -> Iterator[str]:
    """Every cell must find exactly one variant, at every card count listed here or in a variant."""
    counts = sorted({*made.cards, *(count for variant in made.variants for count in variant.cards)})
    for mode, precision, cards in product(made.modes, made.precisions, counts):
        found = matching(made, mode.name, cards, precision)
        if len(found) > 1 or (not found and cards in made.cards):
            which = " and ".join(f"variants[{i}]" for i in found) or "no variant"
            yield f"variants: {which} for {mode.name}, {cards} cards, {precision}; exactly one must match"
