"""``parse``: what is in a log."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from runner.errors import UnknownLog
from runner.model import LogRun
from runner.names import printable

if TYPE_CHECKING:
    from runner.io.logs import Log
    from runner.parsers import Known

HELP = "show what is in a log: family, run parameters, records, rates, problems"
EXAMPLE = "python -m runner parse logs/tf_gpu8_amp_bs256.txt --rule mean:skip=5 --json"

SHOWN = 5  # names of files without a run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``parse``."""
    parser.add_argument(
        "logs", nargs="+", metavar="LOG", help="a log file (plain or gzip), or a folder of logs"
    )
    parser.add_argument(
        "--rule", help="how records become the rate, such as mean:skip=5; default: the family's"
    )
    parser.add_argument("--cards", type=_positive, metavar="N", help="cards, whatever the log says")
    parser.add_argument("--batch-size", type=_positive, metavar="N", help="batch size per card, likewise")
    parser.add_argument("--family", help="the log family, instead of finding it out; see list families")
    parser.add_argument("--json", action="store_true", help="print a JSON array, one object per run found")


def run(args: argparse.Namespace) -> int:
    """Print every run found; 1 where a log held none."""
    from runner.io.logfolders import walk
    from runner.parsers import Known, document
    from runner.rates import parse_rule

    if args.rule is not None:
        parse_rule(args.rule)
    known = Known(family=args.family, rule=args.rule, cards=args.cards, batch_size=args.batch_size)
    found: list[LogRun] = []
    status = 0
    for source in args.logs:
        logs = [(log.name, *read(log, known)) for log in walk(Path(source))]
        tell_unknown(source, [(name, unknown) for name, _, unknown in logs if unknown is not None])
        found += [one for _, runs, _ in logs for one in runs]
        if not any(runs for _, runs, _ in logs):
            status = 1
    if args.json:
        print(json.dumps([document(one) for one in found], indent=1, ensure_ascii=False, allow_nan=False))
    elif found:
        print("\n\n".join("\n".join(_lines(one)) for one in found))
    return status


def read(log: Log, known: Known) -> tuple[list[LogRun], str | None]:
    """Find the runs in a log, with its hash and what reading it brought up; or say why there is none."""
    from runner.parsers import parse

    try:
        runs = parse(log, log.name, known)
    except UnknownLog as error:
        return [], str(error)
    return [replace(one, sha256=log.sha256, problems=(*one.problems, *log.problems)) for one in runs], None


def tell_unknown(source: str, unknown: Sequence[tuple[str, str]]) -> None:
    """Say on standard error which logs of ``source`` held no run: why, for one; their names, for many."""
    if len(unknown) == 1:
        print(f"runkit: {unknown[0][1]}", file=sys.stderr)
    elif unknown:
        names = ", ".join(name for name, _ in unknown[:SHOWN]) + (", ..." if len(unknown) > SHOWN else "")
        text = f"no run found in {len(unknown)} files: {names}; name one of them to see why"
        print(f"runkit: {printable(source)}: {text}", file=sys.stderr)


def _lines(run: LogRun) -> Iterator[str]:
    """A run for people: one fact per line, unknown ones left out."""
    from runner.rates import used

    what = ", ".join(word for word in (run.framework, run.framework_version, run.model) if word)
    state = "complete" if run.complete else "not complete"
    yield f"{printable(run.log)}: {run.family} ({printable(what) or 'unknown'}), {state}"
    settings = (
        f"{key.replace('_', ' ')} {printable(str(getattr(run, key)))} ({source})"
        for key, source in run.sources.items()
    )
    yield f"  settings  {', '.join(settings) or 'unknown'}"
    count = used(run, run.rule)
    basis = f"{count} of {len(run.records)} records" if count else "the log's own figure"
    rate = "none" if run.rate is None else f"{run.rate:.4f} {printable(run.unit)}"
    yield f"  rate      {rate}, all cards, by {run.rule} ({basis})"
    means = [(key, value) for key, value in run.rates.items() if isinstance(value, float)]
    figures = [f"{key} {value:.4f}" for key, value in (*means, *run.rates["summary"].items())]
    yield f"  rates     {', '.join(figures) or 'none'}"
    outcome = {
        "trained in {:.3f} s": run.time_to_train_s,
        "target reached after {:.3f} s": run.time_to_target_s,
        "accuracy {:.2%}": run.accuracy,
    }
    reached = ", ".join(text.format(value) for text, value in outcome.items() if value is not None)
    if reached:
        yield f"  outcome   {reached}"
    for problem in run.problems:
        line = "" if problem.line is None else f"line {problem.line}: "
        yield f"  problem   {problem.code}: {line}{printable(problem.detail)}"


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or not 0 < len(text) < 10 or int(text) == 0:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 on, is {printable(text)}")
    return int(text)
