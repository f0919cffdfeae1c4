"""``lab``: the rehearsal cluster on this machine."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import TYPE_CHECKING, Any

from runner.errors import HostError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

HELP = "a rehearsal cluster on this machine: real hosts with systemd and SSH"
EXAMPLE = "python -m runner lab up --hosts 4 --release bookworm,trixie"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``lab``."""
    parser.add_argument(
        "what", choices=("up", "down", "status"), help="make it, end it, or see what there is"
    )
    parser.add_argument("--hosts", metavar="N", default="", help="up: how many, 1 to 32; default: 4")
    parser.add_argument(
        "--release", metavar="NAMES", default="", help="up: bookworm (default), trixie; several alternate"
    )
    parser.add_argument(
        "--purge", action="store_true", help="down: remove the cached root file systems and packages too"
    )
    parser.add_argument("--json", action="store_true", help="status: as JSON")


def run(args: argparse.Namespace) -> int:
    """Return 0 when the lab is up, or gone, or in order; 1 otherwise."""
    from runner.io import inventory

    # A lab is a cluster as any; which one is meant where none is named is a matter of course.
    folder = inventory.find("lab" if args.inventory == "local" else args.inventory)
    _refuse_misplaced(args)
    return {"up": _up, "down": _down, "status": _status}[args.what](folder, args)


def _refuse_misplaced(args: argparse.Namespace) -> None:
    for option, word in (("hosts", "up"), ("release", "up"), ("purge", "down"), ("json", "status")):
        if getattr(args, option) and args.what != word:
            raise UsageError(f"--{option}: belongs to lab {word}, not to lab {args.what}")
    if args.hosts and not (args.hosts.isascii() and args.hosts.isdigit()):
        raise UsageError(f"--hosts {args.hosts}: must be a whole number, 1 to 32")


def _need_root(what: str) -> None:
    if os.geteuid() != 0:
        raise HostError(f"lab {what} needs root; sudo {sys.executable} -m runner lab {what}")


def _up(folder: Path, args: argparse.Namespace) -> int:
    from runner.io import lab

    plan = lab.up(folder, args.hosts, args.release, lambda text: print(text, file=sys.stderr))
    print(_table(lab.status(plan["name"])))
    return 0


def _down(folder: Path, args: argparse.Namespace) -> int:
    from runner.io import lab

    _need_root("down")
    was = lab.down(folder)
    if args.purge:
        lab.purge()
    print(f"lab {folder.name}: {'gone' if was else 'there was none'}", file=sys.stderr)
    return 0


def _status(folder: Path, args: argparse.Namespace) -> int:
    from runner.io import lab

    _need_root("status")
    found = lab.status(folder.name)
    print(json.dumps(found, indent=1) if args.json else _table(found))
    return 0 if _in_order(found) else 1


def _in_order(found: dict[str, Any]) -> bool:
    up = all(host["state"] == "up" for host in found["hosts"])
    return bool(found["hosts"]) and up and found["bridge"] == found["proxy"] == "up"


def _table(found: dict[str, Any]) -> str:
    from tabulate import tabulate

    name, left = found["name"], {kind: what for kind, what in found["left"].items() if what}
    if not found["hosts"]:
        if not left:
            return f"lab {name}: none; lab up makes it"
        said = ", ".join(f"{len(what)} {kind}" for kind, what in left.items())
        return f"lab {name}: remains of one ({said}); lab down removes them"
    rows = [
        (host["name"], host["state"], host["address"], host["release"], host["cards"])
        for host in found["hosts"]
    ]
    text = tabulate(rows, headers=("Host", "State", "Address", "Release", "Cards"), tablefmt="pipe")
    if not _in_order(found):
        text += (
            f"\n\nbridge {found['bridge']}, package proxy {found['proxy']}; lab up starts what is off; where"
            " it does not mend it, lab down ends it, for a new one"
        )
    return text
