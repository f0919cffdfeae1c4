"""``compare``: two sets of figures side by side."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from runner.errors import UsageError
from runner.names import hint, printable, shown

if TYPE_CHECKING:
    from runner.comparing import Compared, Side

HELP = "two runs, folders of logs or published reports side by side"
EXAMPLE = "python -m runner compare runs/before runs/after"

FORMATS = ("md", "json")
CHANGES = {None: "unknown: no interval", True: "more than noise", False: "within noise"}
HEADINGS = ("cards", "what", "setting", "A", "B", "B / A", "95 %", "change", "like for like")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``compare``."""
    what = "a run (id or folder), a folder of logs, a log, or the layout of a published report"
    parser.add_argument("a", metavar="A", help=what)
    parser.add_argument("b", metavar="B", help="likewise")
    parser.add_argument(
        "--allow",
        default="",
        metavar="REASONS",
        help="take into the summary what is unlike only in these, such as hardware,date",
    )
    parser.add_argument("--format", choices=FORMATS, default="md", help="default: md")
    parser.add_argument("--json", action="store_true", help="the same as --format json")


def run(args: argparse.Namespace) -> int:
    """Print the pairs; 1 where nothing pairs, or a pair is unlike in a way that is not allowed."""
    from runner.comparable import REASONS
    from runner.comparing import compare
    from runner.sides import sides

    allowed = [word for word in args.allow.split(",") if word]
    for word in allowed:
        if word not in REASONS:
            raise UsageError(f"--allow {shown(word)}: unknown; {hint(word, REASONS)}")
    pairs, alone = compare(sides(args.a), sides(args.b))
    for side in alone:
        print(f"runkit: {_named(side)}: nothing to compare it with", file=sys.stderr)
    if args.json or args.format == "json":
        print(_document(pairs, allowed))
    else:
        print(_table(pairs, allowed), end="")
    if not pairs:
        print("runkit: nothing pairs: A and B share no model and number of cards", file=sys.stderr)
    return 0 if pairs and all(set(pair.reasons) <= set(allowed) for pair in pairs) else 1


def _named(side: Side) -> str:
    setting = f"{side.cards} cards, {side.precision or 'precision unknown'}"
    return printable(f"{side.source}: {side.what}, {setting}, batch size {side.batch_size or 'unknown'}")


def _table(pairs: Sequence[Compared], allowed: Collection[str]) -> str:
    from runner.comparing import mean_ratio
    from runner.model import Table
    from runner.render import markdown

    mean = mean_ratio(pairs, allowed)
    left_out = sum(not set(pair.reasons) <= set(allowed) for pair in pairs)
    notes = [] if mean is None else [f"B / A over what is like for like, geometric mean: {mean:.4f}"]
    if left_out:
        notes.append(f"not like for like, and in no mean: {left_out} of {len(pairs)}; --allow takes them in")
    if any(pair.changed is not None for pair in pairs):
        notes.append("a change is told at 95 %: where nothing changed, at most 1 in 20 is told wrongly")
    if any(pair.changed is not None and len(pair.a.rates) == len(pair.b.rates) == 1 for pair in pairs):
        notes.append(
            "of one run on either side only the noise within it is known; --repeat shows that between runs"
        )
    return markdown([Table("A and B", HEADINGS, tuple(map(_row, pairs)), tuple(notes))]) if pairs else ""


def _row(pair: Compared) -> tuple[str, ...]:
    setting = (pair.a.precision, pair.a.batch_size and f"BS={pair.a.batch_size}")
    return (
        str(pair.a.cards),
        pair.a.what,
        " ".join(str(word) for word in setting if word),
        f"{pair.a.rate:.6g}",
        f"{pair.b.rate:.6g}",
        f"{pair.ratio:.4f}",
        f"{pair.ci95[0]:.4f} to {pair.ci95[1]:.4f}" if pair.ci95 else "-",
        CHANGES[pair.changed],
        _differences(pair) or "yes",
    )


def _differences(pair: Compared) -> str:
    """What is unlike, A's and B's, by the names that ``--allow`` takes."""
    from runner.comparable import unlike

    both = unlike(pair.a.terms, pair.b.terms)
    return ", ".join(f"{reason} ({one} / {other})" for reason, (one, other) in both.items())


def _document(pairs: Sequence[Compared], allowed: Collection[str]) -> str:
    from runner.comparing import mean_ratio

    rows = [
        {
            "what": pair.a.what,
            "cards": pair.a.cards,
            "a": _side(pair.a),
            "b": _side(pair.b),
            "ratio": pair.ratio,
            "ci95": pair.ci95,
            "changed": pair.changed,
            "comparable": not pair.reasons,
            "reasons": pair.reasons,
        }
        for pair in pairs
    ]
    body = {"rows": rows, "mean_ratio": mean_ratio(pairs, allowed)}
    return json.dumps(body, indent=1, ensure_ascii=False, allow_nan=False)


def _side(side: Side) -> dict[str, object]:
    keys = ("source", "rate", "rates", "rule", "unit", "precision", "batch_size")
    return {key: getattr(side, key) for key in (*keys, "hardware", "driver", "mode", "date")}
