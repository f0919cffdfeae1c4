"""What must hold for any bytes: a right answer or one line of refusal, and never anything else.

    python tests/fuzzing.py [TARGET] [SECONDS]

This mutates the logs of tests/parsers; where atheris is installed and one target is named, guided by the
branches that are taken.
The test suite runs the same targets on a few hundred inputs. An input that breaks one is left in the current
folder as ``broken-TARGET``.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from math import inf
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
GUIDED = __name__ == "__main__" and importlib.util.find_spec("atheris") is not None
atheris = importlib.import_module("atheris") if GUIDED else None

with nullcontext() if atheris is None else atheris.instrument_imports(["runner"]):
    from runner import material
    from runner.audit import VERDICTS, audit, choose
    from runner.claims import COLUMNS, NEEDED, Claim, claims
    from runner.errors import UsageError
    from runner.gathering import read
    from runner.io.claims import rows, text
    from runner.io.logs import Log
    from runner.layout_tables import tables_of
    from runner.model import LogRun
    from runner.parsers import NOTHING_KNOWN, document, families
    from runner.published_tables import claims_of
    from runner.readings import Reading
    from runner.render import csv_text, html, markdown
    from runner.tables import found

    families()

NAME = "tf_gpu8_amp_bs64.log"  # says cards, precision and batch size
SEEDS = sorted((ROOT / "tests" / "parsers").glob("*/*.log"))
PAGE = "{% for table in tables %}{% for row in table.rows %}{{ row }}{% endfor %}{% endfor %}"
LARGEST = 1 << 16
REPORT = (
    "## Throughput (images/sec)\n| Cards | FP32(BS=32) | AMP(BS=64) |\n|:--:|:--:|:--:|\n| 1 | 5.25 | -- |\n"
    "|8卡| 40.1 | 2,010.5 |\n\n[8 cards AMP BS=64](./logs/tf_gpu8_amp_bs64.log)\n\n"
    "| 参数 | A | B |\n|--|--|--|\n| GPU=8,BS=4 | 58.2 | 加速比 |\n"
)
CLAIMS = (
    "log,published,unit,cards,precision,batch_size,rule_expr,hardware\n"
    f"{NAME},2010.5,images/sec,8,amp,64,mean:skip=5,V100\n{NAME},6.98,x,8,amp,64,,\n"
    f'{NAME},"2,010",images/sec,1,fp16,64,summary:train_throughput,\n,--,%,,,,trim:skip=1,\n'
)


def log(data: bytes) -> None:
    """Find the runs in a log and show them in every way."""
    runs = _runs(data)
    for run in runs:
        json.loads(json.dumps(document(run), allow_nan=False))
        assert run.rate is None or 0 <= run.rate < inf, run.rate
        assert all(one.line > 0 for one in run.records)
    tables = [found(runs)]
    page = html(tables, "t", "en", PAGE)
    assert "<" not in page
    for shown in (markdown(tables), csv_text(tables), page):
        _plain(shown)


def report(data: bytes) -> None:
    """Read the tables of a published report."""
    with _File(data, "report.md") as path:
        for claim in claims_of(text(path), "report.md"):
            assert "\n" not in claim.published


def table(data: bytes) -> None:
    """Hold a table of claims against a log."""
    with _File(data, "claims.csv") as path:
        stated = claims(rows(path, COLUMNS, NEEDED), "claims.csv")
    _judged(stated, _KNOWN[:1])


def judged(data: bytes) -> None:
    """Hold a report against a log, of which both come from the same bytes."""
    head, _, tail = data.partition(b"\0\0")
    runs = _runs(tail)
    with _File(head, "report.md") as path:
        _judged(claims_of(text(path), "report.md"), runs)


def layout(data: bytes) -> None:
    """Show what a log gives in the shapes of published reports, whose speed-ups two runs of it may give."""
    runs = tuple(_runs(data)[:2])
    for shape in _LAYOUTS:
        named = next(
            name for grid in shape.tables for row in grid.rows for cell in row.cells if (name := cell.log)
        )
        for readings in (
            [Reading(named, None, runs[:1])],
            [Reading(f"{at}.log", None, (one,)) for at, one in enumerate(runs)],
        ):
            for one in tables_of(shape, readings, "zh", fill=True):
                _plain(markdown([one]))


TARGETS: dict[str, tuple[Callable[[bytes], None], Sequence[bytes]]] = {
    "log": (log, [path.read_bytes() for path in SEEDS]),
    "layout": (layout, [path.read_bytes() for path in SEEDS]),
    "report": (report, [REPORT.encode()]),
    "table": (table, [CLAIMS.encode()]),
    "judged": (
        judged,
        [REPORT.encode() + b"\0\0" + path.read_bytes() for path in SEEDS if "bs64" in path.name],
    ),
}


def attempt(name: str, data: bytes) -> None:
    """Try one input; a refusal is one line of printable text."""
    try:
        TARGETS[name][0](data[:LARGEST])
    except UsageError as error:
        refusal = str(error)
    else:
        return
    assert refusal.isprintable(), refusal


def mutated(seed: bytes, dice: random.Random) -> bytes:
    """Change a few places: bytes, figures, runs of bytes, whole lines."""
    data = bytearray(seed[:LARGEST]) or bytearray(b"x")
    for _ in range(dice.randrange(1, 8)):
        at, length = dice.randrange(len(data) + 1), dice.choice((1, 1, 2, 8, 200))
        data[at : at + length * dice.randrange(2)] = dice.choice(PIECES) * dice.choice((1, 1, 1, 40))
        if dice.randrange(3) == 0:
            lines = data.split(b"\n")
            dice.shuffle(lines) if dice.randrange(4) == 0 else lines.insert(0, dice.choice(lines))
            data = bytearray(b"\n".join(lines))
    return bytes(data)


PIECES = (
    *(
        b"",
        b"0",
        b"9" * 30,
        b"-1",
        b"1e308",
        b"1e-320",
        b"nan",
        b"-inf",
        b"0.0",
        b"\0",
        b"\x1b[2J",
        b"\r",
        b"\n",
    ),
    *(
        b"<script>",
        b"{{ 7*7 }}",
        b"{% x",
        b"|",
        b"`",
        b"\xff",
        "\u202e٣".encode(),
        b"[1,3]<stdout>: ",
        b'{"',
        b"]" * 9,
    ),
)


# --- parts -----------------------------------------------------------------------------------


class _File:
    """A file of those bytes, for a while."""

    def __init__(self, data: bytes, name: str) -> None:
        self.folder = tempfile.TemporaryDirectory(dir=_MEMORY)
        self.path = Path(self.folder.name) / name
        self.path.write_bytes(data)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.folder.cleanup()


_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None


def _runs(data: bytes) -> list[LogRun]:
    with _File(data, NAME) as path:
        content = read(Log(path, NAME), NOTHING_KNOWN)
    if content.error is not None:
        raise content.error
    return list(content.runs)


_LAYOUTS = [material.layout(name) for name in material.layouts()]
_KNOWN = _runs((ROOT / "tests/parsers/dll_tf_resnet50/tf_gpu8_amp_bs64.log").read_bytes())


def _judged(stated: Sequence[Claim], runs: Sequence[LogRun]) -> None:
    known = [replace(one, log=NAME) for one in stated]
    verdicts, findings = audit(known, [choose(one, runs) for one in known])
    assert all(row.verdict in VERDICTS for row in verdicts)
    json.dumps([row.recomputed for row in verdicts], allow_nan=False)
    assert all(0 <= row.chance <= 1 for row in verdicts if row.chance is not None)
    for one in findings:
        _plain(one.detail)


def _plain(shown: str) -> None:
    assert all(letter.isprintable() or letter == "\n" for letter in shown), repr(shown)


def _guided(name: str, seconds: float) -> int:
    """Let atheris choose the inputs; it ends the process itself."""
    assert atheris is not None
    corpus = Path(tempfile.mkdtemp())
    for number, seed in enumerate(TARGETS[name][1]):
        (corpus / str(number)).write_bytes(seed)
    limits = [f"-max_total_time={seconds:.0f}", f"-max_len={LARGEST}", "-timeout=20", "-rss_limit_mb=2048"]
    atheris.Setup(["fuzz", *limits, str(corpus)], lambda data: attempt(name, data))
    atheris.Fuzz()
    return 0


def main(words: Sequence[str]) -> int:
    """Fuzz one target, or each in turn."""
    names = [word for word in words if word in TARGETS] or list(TARGETS)
    seconds = float(next((word for word in words if word not in TARGETS), 60))
    if atheris is not None and len(names) == 1:
        return _guided(names[0], seconds)
    for name in names:
        dice, tried, until = random.Random(), 0, time.monotonic() + seconds
        while time.monotonic() < until:
            data = mutated(dice.choice(TARGETS[name][1]), dice)
            began = time.process_time()
            try:
                attempt(name, data)
                assert time.process_time() - began < 5, "too slow"
            except BaseException:
                Path(f"broken-{name}").write_bytes(data)
                raise
            tried += 1
        print(f"{name}: {tried} inputs")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
