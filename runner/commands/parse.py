"""``parse``: what is in a log."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from runner.model import LogRun
from runner.names import printable

HELP = "show what is in a log: family, run parameters, records, rates, problems"
EXAMPLE = "python -m runner parse logs/tf_gpu8_amp_bs256.txt --rule mean:skip=5 --json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``parse``."""
    parser.add_argument(
        "logs",
        nargs="+",
        metavar="LOG",
        help="a log, plain or packed (gzip, bzip2, xz, zstd), or a folder or archive (tar, zip) of logs",
    )
    parser.add_argument(
        "--rule", help="how records become the rate, such as mean:skip=5; default: the family's"
    )
    parser.add_argument("--cards", type=_positive, metavar="N", help="cards, whatever the log says")
    parser.add_argument("--hosts", type=_positive, metavar="N", help="hosts, where rates are those of one")
    parser.add_argument("--batch-size", type=_positive, metavar="N", help="batch size per card, likewise")
    parser.add_argument("--family", help="the log family, instead of finding it out; see list families")
    parser.add_argument("--json", action="store_true", help="print a JSON array, one object per run found")


def run(args: argparse.Namespace) -> int:
    """Print every run found; 1 where a log held none."""
    from runner.gathering import read_all, tell_unknown
    from runner.parsers import Known, document, told_twice, words
    from runner.rates import parse_rule

    if args.rule is not None:
        parse_rule(args.rule)
    known = Known(
        family=args.family, rule=args.rule, cards=args.cards, hosts=args.hosts, batch_size=args.batch_size
    )
    words(known)  # refuses an unknown family, before any log is at fault
    found: list[LogRun] = []
    status = 0
    for source, contents in zip(args.logs, read_all(args.logs, known), strict=True):
        tell_unknown(source, [(one.log.name, one.unknown) for one in contents if one.unknown is not None])
        found += [run for one in contents for run in one.runs]
        if not any(one.runs for one in contents):
            status = 1
    found = told_twice(found)
    if args.json:
        print(json.dumps([document(one) for one in found], indent=1, ensure_ascii=False, allow_nan=False))
    elif found:
        print("\n\n".join("\n".join(_lines(one)) for one in found))
    return status


def _lines(run: LogRun) -> Iterator[str]:
    """A run for people: one fact per line, unknown ones left out."""
    from runner.parsers import in_words
    from runner.rates import used

    what = ", ".join(word for word in (run.framework, run.framework_version, run.model) if word)
    state = "complete" if run.complete else "not complete"
    yield f"{printable(run.log)}: {run.family} ({printable(what) or 'unknown'}), {state}"
    settings = (
        f"{key.replace('_', ' ')} {printable(str(getattr(run, key)))} ({source})"
        for key, source in run.sources.items()
    )
    yield f"  settings  {', '.join(settings) or 'unknown'}"
    machine = {"GPU": run.gpu, "driver": run.driver, "NCCL": run.nccl}
    if any(machine.values()):
        yield f"  machine   {', '.join(f'{key} {printable(one)}' for key, one in machine.items() if one)}"
    if run.transport:
        yield f"  transport {printable(in_words(run.transport))}"
    count = used(run, run.rule)
    basis = f"{count} of {len(run.records)} records" if count else "the log's own figure"
    rate = "none" if run.rate is None else f"{run.rate:.4f} {printable(run.unit)}"
    yield f"  rate      {rate}, all cards, by {run.rule} ({basis})"
    if run.steady is not None:
        yield f"  steady    {_steady(run.steady)}"
    means = [(key, value) for key, value in run.rates.items() if isinstance(value, float)]
    figures = [f"{key} {value:.4f}" for key, value in (*means, *run.rates["summary"].items())]
    yield f"  rates     {', '.join(figures) or 'none'}"
    if run.lines_not_used:
        reasons = (f"{number} {reason}" for reason, number in sorted(run.lines_not_used.items()))
        yield f"  not used  {', '.join(reasons)}"
    if reached := _outcome(run):
        yield f"  outcome   {reached}"
    for problem in run.problems:
        line = "" if problem.line is None else f"line {problem.line}: "
        yield f"  problem   {problem.code}: {line}{printable(problem.detail)}"


def _outcome(run: LogRun) -> str:
    outcome = {
        "trained in {:.3f} s": run.time_to_train_s,
        "target reached after {:.3f} s": run.time_to_target_s,
        "accuracy {:.2%}": run.accuracy,
    }
    return ", ".join(text.format(value) for text, value in outcome.items() if value is not None)


def _steady(found: Mapping[str, Any]) -> str:
    """The steady rate in words: with its interval, or without, and what was left out of it."""
    low, high = found["ci95"] or (None, None)
    interval = "no interval" if low is None else f"{low:.4f} to {high:.4f} with 95 % confidence"
    reasons = Counter(one["reason"].replace("_", " ") for one in found["left_out"])
    left_out = ", ".join(f"{number} {reason}" for reason, number in reasons.items())
    return f"{found['rate']:.4f}, {interval} ({found['records']} records" + (
        f"; left out: {left_out})" if left_out else ")"
    )


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or not 0 < len(text) < 10 or int(text) == 0:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 on, is {printable(text)}")
    return int(text)
