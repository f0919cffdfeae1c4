"""``collect``: fetch the logs of a run again and verify their checksums."""

from __future__ import annotations

import argparse
import sys

from runner.errors import HostError

HELP = "fetch the logs of a run again and verify their checksums"
EXAMPLE = "python -m runner collect 20261127-235912-ab12"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``collect``."""
    parser.add_argument("run_id", metavar="RUN", help="the run's id under runs/, or the path of its folder")


def run(args: argparse.Namespace) -> int:
    """Return 0 when every file came home with the checksum that its host took."""
    from runner import conduct, judging
    from runner.io import rundir

    folder = rundir.find(args.run_id)
    opened = conduct.open_run(folder)
    changed = folder.wrong_sums()
    for name in changed:
        print(f"{name}: is not what it was when it was collected; fetched again", file=sys.stderr)
    fetched = conduct.collect(opened)
    judging.judge(folder, opened.plan, fetched)
    if fetched.absent:
        missing = "; ".join(f"{host}: {why}" for host, why in fetched.absent.items())
        raise HostError(
            f"{opened.plan.run}: {len(fetched.files)} files, but not those of {missing}; collect again"
        )
    if not fetched.files:
        raise HostError(
            f"{opened.plan.run}: its hosts hold nothing of it; what is in {folder.path} is all there is"
        )
    came = f"{len(fetched.files)} files, each with the checksum taken on its host"
    print(f"{opened.plan.run}: {came}", file=sys.stderr)
    return 0
