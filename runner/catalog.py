"""The catalogue: the mapping of a workload file becomes a Workload, or one line that says what is wrong.

A workload file is data, and may be anybody's. ``{name}`` in it is replaced, see ``placeholders``; no other
brace means anything. ``bounds`` and ``recipe`` have the rest of the rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from runner import bounds, placeholders, recipe, records
from runner.errors import UsageError
from runner.launch import LAUNCHERS
from runner.model import Mode, Variant, Workload
from runner.names import hint, is_name, is_word, shown

MODES = ("throughput", "time_to_train", "accuracy")
# How many of these a file may list; it takes what they are multiplied with to find each cell's variant.
MOST = {"precisions": 16, "batch_sizes": 64, "cards": 64, "modes": len(MODES), "variants": 128}
MANY_HOSTS = tuple(name for name, launcher in LAUNCHERS.items() if launcher.many_hosts)
LONGEST_WORD = 48  # of a workload's name or a precision, which become part of the names of files


def workload(name: str, document: Mapping[str, Any], families: Sequence[str], path: str) -> Workload:
    """Make the Workload called ``name`` of the ``document`` in the file ``path``.

    ``families`` are the log families there are. Raises UsageError that names the file and the key.
    """
    if not _is_short(name):
        text = f"a workload's name has at most {LONGEST_WORD} letters, digits, _ and -; rename the file"
        raise UsageError(f"{path}: {text}")
    if problem := bounds.problem(document):
        raise UsageError(f"{path}: {problem}")
    for key in ("name", "path"):
        if key in document:
            raise UsageError(f"{path}: {key}: unknown key; the file itself says it; remove the line")
    made = records.decode(Workload, {**_completed(document), "name": name, "path": path}, path)
    if problem := next(_problems(made, families), None):
        raise UsageError(f"{path}: {problem}")
    return made


def matching(made: Workload, mode: str, cards: int, precision: str, hosts: int) -> list[int]:
    """Return the indices of the variants that match; a cell is served by exactly one.

    Where one of a launcher of one host and one of several match, the ``hosts`` of the cell decide: 8 cards
    are one host in one cluster, and two in another.
    """
    found = [i for i, variant in enumerate(made.variants) if _matches(variant, mode, cards, precision)]
    many = [i for i in found if made.variants[i].launcher in MANY_HOSTS]
    one = [i for i in found if i not in many]
    return (many if hosts > 1 else one) if many and one else found


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


def _is_short(word: str) -> bool:
    return is_word(word) and len(word) <= LONGEST_WORD


def _over(silent: dict[str, Any], item: Any) -> Any:
    return {**silent, **item} if isinstance(item, Mapping) else item


def _problems(made: Workload, families: Sequence[str]) -> Iterator[str]:
    """Say what is wrong beyond the types, the first problem first."""
    yield from _list_problems(made)
    yield from _text_problems(made)
    yield from _mode_problems(made)
    if made.family not in families:
        yield f"family: {shown(made.family)} is unknown; {hint(made.family, families)}"
    yield from _contained_problems(made)
    yield from recipe.problems(made)
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
        if len(values) > MOST[key]:
            yield f"{key}: more than {MOST[key]}"
        elif not values or any(value in values[:place] for place, value in enumerate(values)):
            yield f"{key}: must name at least one, and none twice"
    numbers = {"batch_sizes": made.batch_sizes, "cards": made.cards}
    for index, variant in enumerate(made.variants):
        numbers[f"variants[{index}].cards"] = variant.cards
    for key, counts in numbers.items():
        if any(count < 1 for count in counts):
            yield f"{key}: must be positive whole numbers"


def _text_problems(made: Workload) -> Iterator[str]:
    for key in ("title", "framework", "model", "unit"):
        if not getattr(made, key).strip():
            yield f"{key}: must be text, is empty"
    for word in made.precisions:
        if not _is_short(word):
            yield f"precisions: {shown(word)}: use at most {LONGEST_WORD} letters, digits, _ and -"
    yield from placeholders.problems("log_name", made.log_name, placeholders.OF_THE_CELL)
    if not is_name(placeholders.filled(made.log_name, "x" * LONGEST_WORD)):
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


def _contained_problems(made: Workload) -> Iterator[str]:
    """What a workload that runs in containers must state."""
    contained = any(LAUNCHERS[v.launcher].contained for v in made.variants if v.launcher in LAUNCHERS)
    for key in ("sources", "image", "container"):
        if contained and not getattr(made, key):
            yield f"{key}: is missing; a variant of this workload runs in a container"


def _argv_problems(key: str, variant: Variant, made: Workload) -> Iterator[str]:
    if not variant.argv:
        yield f"{key}: is empty; write the command as a list"
    served = [mode for mode in made.modes if not variant.modes or mode.name in variant.modes]
    aimless = [mode.name for mode in served if mode.target is None]
    for index, word in enumerate(variant.argv):
        yield from placeholders.problems(f"{key}[{index}]", word)
        if "{target}" in word and aimless:
            yield f"{key}[{index}]: mode {aimless[0]} has no target; give it one, or a variant of its own"


def _match_problems(made: Workload) -> Iterator[str]:
    """Every cell must find exactly one variant, at every card count listed here or in a variant."""
    counts = sorted({*made.cards, *(count for variant in made.variants for count in variant.cards)})
    if len(counts) > MOST["cards"]:
        yield f"variants: more than {MOST['cards']} different numbers of cards"
        return
    for mode, precision, cards, hosts in product(made.modes, made.precisions, counts, (1, 2)):
        found = matching(made, mode.name, cards, precision, hosts)
        if len(found) > 1 or (not found and cards in made.cards):
            which = " and ".join(f"variants[{i}]" for i in found) or "no variant"
            yield f"variants: {which} for {mode.name}, {cards} cards, {precision}; exactly one must match"
