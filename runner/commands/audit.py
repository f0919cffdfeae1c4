"""``audit``: hold published figures against the logs that they cite."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from runner.errors import UsageError
from runner.model import LogRun, Table
from runner.names import printable

if TYPE_CHECKING:
    from runner.across import Finding
    from runner.claims import Claim
    from runner.findings import Row
    from runner.gathering import Content
    from runner.parsers import Known

HELP = "hold published figures against the logs that they cite"
EXAMPLE = "python -m runner audit claims.csv --logs ../logs"

FORMATS = ("text", "md", "json")  # the first two are the same: Markdown that people can read as it is


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``audit``."""
    parser.add_argument(
        "claims", nargs="?", metavar="CLAIMS.csv", help="one published figure per row; see docs/audit.md"
    )
    parser.add_argument("--report", metavar="FILE.md", help="a published report: its tables are the claims")
    parser.add_argument("--logs", required=True, metavar="DIR", help="the folder that the logs are in")
    parser.add_argument("--format", choices=FORMATS, default="text", help="default: text")
    parser.add_argument("--json", action="store_true", help="the same as --format json")


def run(args: argparse.Namespace) -> int:
    """Print a verdict per claim and what was found beside; 1 where a claim does not hold."""
    from runner.audit import audit, passed

    if (args.claims is None) == (args.report is None):
        raise UsageError("audit: name either a table of claims, CLAIMS.csv, or --report FILE.md")
    folder = Path(args.logs)
    if not folder.is_dir():
        raise UsageError(f"--logs: {printable(str(folder))} is no folder; name the one that holds the logs")
    claimed = _of_table(Path(args.claims)) if args.claims else _of_report(Path(args.report), folder)
    verdicts, findings = audit(claimed, _runs(claimed, folder))
    form = "json" if args.json else args.format
    print(_document(verdicts, findings) if form == "json" else _shown(verdicts, findings))
    return 0 if passed(verdicts) else 1


def _of_table(path: Path) -> list[Claim]:
    from runner.claims import COLUMNS, NEEDED, claims
    from runner.io.claims import rows

    return claims(rows(path, COLUMNS, NEEDED), printable(str(path)))


def _of_report(path: Path, folder: Path) -> list[Claim]:
    """The claims of a report, whose logs are looked for by the names of their files, or other known ones."""
    from runner.io.claims import text
    from runner.io.logfolders import walk
    from runner.published_tables import claims_of

    claimed = claims_of(text(path), printable(str(path)))
    if not claimed:
        remedy = "a table needs rows of cards, and columns of throughput or settings such as AMP(BS=4)"
        raise UsageError(f"{printable(str(path))}: no table of figures; {remedy}")
    there: dict[str, str] = {}
    for log in walk(folder):
        there.setdefault(log.name.rpartition("/")[2], log.name)
    aliases = _aliases()
    return [
        replace(
            one,
            log=next(
                (there[name] for name in (one.log, *aliases.get(one.log, ())) if name in there), one.log
            ),
        )
        for one in claimed
    ]


def _aliases() -> dict[str, tuple[str, ...]]:
    """Other names that a log is published under, by each of its names."""
    from runner import material

    layouts = [material.layout(name) for name in material.layouts()]
    cells = [cell for layout in layouts for grid in layout.tables for row in grid.rows for cell in row.cells]
    groups = [(cell.log, *cell.aliases) for cell in cells if cell.log and cell.aliases]
    return {name: group for group in groups for name in group}


def _runs(claimed: Sequence[Claim], folder: Path) -> list[LogRun | None]:
    """Read each log once, and again with what the claim knows where the log does not say enough."""
    from runner.audit import choose
    from runner.gathering import read_all
    from runner.parsers import NOTHING_KNOWN

    names = dict.fromkeys(claim.log for claim in claimed if claim.log)
    there = {name: path for name in names if (path := _below(folder, name)) is not None}
    found = read_all([*map(str, there.values())], NOTHING_KNOWN)
    contents = {name: content for name, of_log in zip(there, found, strict=True) for content in of_log}
    read_again: dict[tuple[str, Known], Sequence[LogRun]] = {}
    return [choose(claim, _of(claim, contents.get(claim.log), read_again)) for claim in claimed]


def _of(
    claim: Claim, content: Content | None, read_again: dict[tuple[str, Known], Sequence[LogRun]]
) -> Sequence[LogRun]:
    """The runs of a log, with the cards and batch size that the claim states where the log is silent."""
    from runner.gathering import read
    from runner.parsers import Known

    if content is None:
        return ()
    if any(one.rate is not None or one.records for one in content.runs):
        lacking = [one for one in content.runs if one.cards is None or one.batch_size is None]
        if not lacking:
            return content.runs
        stated = Known(
            cards=claim.cards if lacking[0].cards is None else None,
            batch_size=claim.batch_size if lacking[0].batch_size is None else None,
        )
        key = (claim.log, stated)
        if key not in read_again:
            read_again[key] = read(content.log, stated).runs
        return read_again[key]
    return content.runs


def _below(folder: Path, name: str) -> Path | None:
    """The file of that name below ``folder``; None where there is none, or where it leads out of it."""
    try:
        root, path = folder.resolve(), (folder / name).resolve()
        return path if path.is_relative_to(root) and path.is_file() else None
    except (OSError, ValueError):
        return None


# --- showing ---------------------------------------------------------------------------------


def _document(rows: Sequence[Row], findings: Sequence[Finding]) -> str:
    body = {
        "rows": [
            {
                "log": row.claim.log,
                "published": row.claim.published,
                "verdict": row.verdict,
                "rule": row.rule,
                "recomputed": row.recomputed,
                "records": row.records,
                "rules_tried": row.rules_tried,
                "rules_matched": row.rules_matched,
                "chance": row.chance,
                "reason": row.reason,
                "findings": list(row.findings),
            }
            for row in rows
        ],
        "findings": [{"code": one.code, "rows": list(one.claims), "detail": one.detail} for one in findings],
    }
    return json.dumps(body, indent=1, ensure_ascii=False, allow_nan=False)


def _shown(rows: Sequence[Row], findings: Sequence[Finding]) -> str:
    from runner.render import markdown

    table = Table(
        "Audit",
        ("claim", "log", "published", "verdict", "rule", "recomputed", "records", "why"),
        tuple(tuple(_cells(number, row)) for number, row in enumerate(rows, 1)),
        (),
    )
    found = Table(
        "Findings",
        ("claims", "finding", "detail"),
        tuple((", ".join(str(at + 1) for at in one.claims), one.code, one.detail) for one in findings),
        (),
    )
    text = markdown([table, found] if findings else [table])
    counts = {
        word: sum(row.verdict == word for row in rows) for word in dict.fromkeys(row.verdict for row in rows)
    }
    summary = ", ".join(f"{number} {word}" for word, number in counts.items())
    print(f"runkit: {len(rows)} claims: {summary or 'none'}; findings: {len(findings)}", file=sys.stderr)
    return text.rstrip("\n")


def _cells(number: int, row: Row) -> list[str]:
    tried = "" if row.rules_tried is None else _search(row)
    return [
        str(number),
        row.claim.log,
        row.claim.published,
        row.verdict,
        row.rule or "",
        "" if row.recomputed is None else f"{row.recomputed:.6g}",
        "" if row.records is None else str(row.records),
        "; ".join(text for text in (row.reason or "", tried) if text),
    ]


def _search(row: Row) -> str:
    text = f"{row.rules_matched} of {row.rules_tried} rules tried give it"
    return text if row.chance is None else f"{text}, by chance {row.chance:.1%}"
