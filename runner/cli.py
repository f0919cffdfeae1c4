"""The command line: finds the commands, parses, and turns errors into one line and a status.

A command is a module of ``runner.commands`` with

    HELP      one line
    EXAMPLE   a command line that works
    add_arguments(parser)
    run(args) -> exit status

Commands import what is heavy inside ``run``, so that ``--help`` stays quick.
"""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import sys
from collections.abc import Sequence
from types import ModuleType

from runner import commands
from runner.errors import RunkitError, StorageError


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit status. No traceback leaves here unless ``--debug``."""
    _open_streams()
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        args = _parsed(words)
        status: int = args.run(args)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # the reader of our output has seen enough, as in "| head"
        _discard_output()
        return 0
    except KeyboardInterrupt:
        return _complain("interrupted", 130)
    except Exception as error:
        if "--debug" in words:
            raise
        _discard_output()
        return _complain(*_explained(error))


def _parsed(words: Sequence[str]) -> argparse.Namespace:
    try:
        return _parser().parse_args(words)
    except SystemExit:
        sys.stdout.flush()  # the help that was asked for; where it cannot be written, that is an error as any
        raise


def _open_streams() -> None:
    """A stream that the caller closed (``>&-``) must not become the next file that is opened."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, this one
            setattr(sys, name, os.fdopen(number, "w" if number else "r"))


def _discard_output() -> None:
    """What standard output still holds cannot be written; Python must not try again at its end."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _explained(error: Exception) -> tuple[str, int]:
    """The line and the exit status for an error."""
    if isinstance(error, RunkitError):
        return str(error), error.status
    if isinstance(error, OSError):
        return _os_error(error), StorageError.status
    if isinstance(error, ModuleNotFoundError) and not str(error.name).startswith("runner"):
        return f"the Python package {error.name} is missing; pip install -r requirements.txt brings it", 2
    text = f"internal error: {type(error).__name__}: {error}"
    return f"{text}; run again with --debug and report what it prints", 1


def _complain(text: str, status: int) -> int:
    one_line = " ".join(text.split())
    print(f"runkit: {one_line}", file=sys.stderr)
    return status


def _os_error(error: OSError) -> str:
    where = f"{os.fsdecode(error.filename)}: " if error.filename is not None else ""
    return f"{where}{error.strerror or error}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m runner",
        description="Make GPU hosts ready, run training on all of them in step, tabulate it.",
        parents=[_everywhere(os.environ.get("RUNKIT_CLUSTER") or "local", False)],
        allow_abbrev=False,
    )
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module in _commands():
        sub = subparsers.add_parser(
            module.__name__.rpartition(".")[2].replace("_", "-"),
            help=module.HELP,
            description=module.HELP,
            epilog=f"example: {module.EXAMPLE}",
            parents=[_everywhere(argparse.SUPPRESS, argparse.SUPPRESS)],
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(sub)
        sub.set_defaults(run=module.run)
    return parser


def _everywhere(inventory: str, debug: bool | str) -> argparse.ArgumentParser:
    """Options that may stand before the command or after it, there without a default, which would win."""
    parser = argparse.ArgumentParser(add_help=False)
    group = parser.add_argument_group("everywhere")
    group.add_argument(
        "-i",
        "--inventory",
        metavar="CLUSTER",
        default=inventory,
        help="a name under inventory/ or a path; default: $RUNKIT_CLUSTER, else local",
    )
    group.add_argument("--debug", action="store_true", default=debug, help="show tracebacks")
    return parser


def _commands() -> list[ModuleType]:
    names = sorted(info.name for info in pkgutil.iter_modules(commands.__path__))
    return [importlib.import_module(f"{commands.__name__}.{name}") for name in names]
