"""``stop``: end everything that a run left on any host."""

from __future__ import annotations

import argparse
import sys

HELP = "end everything the run left on any host"
EXAMPLE = "python -m runner stop 20261127-235912-ab12"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``stop``."""
    parser.add_argument("run_id", metavar="RUN", help="the run's id under runs/, or the path of its folder")


def run(args: argparse.Namespace) -> int:
    """Return 0 when nothing is left; raises HostError where something survives."""
    from runner import conduct
    from runner.io import rundir

    ended = conduct.stop(conduct.open_run(rundir.find(args.run_id)))
    print(
        f"{args.run_id}: " + (f"ended on {ended} host(s)" if ended else "nothing was left"), file=sys.stderr
    )
    return 0
