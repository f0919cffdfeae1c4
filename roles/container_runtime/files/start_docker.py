"""Start docker, or restart it: ``start_docker.py start|restart``; wait for it no longer than PATIENCE_S.

The unit has no limit of time for a dockerd that never is ready. Prints nothing where docker runs then; what
dockerd said of its failure, and exit status 1, where it does not. Python 3.8 or later, standard library only.
"""

import json
import re
import subprocess
import sys
import time

UNIT = "docker.service"
PATIENCE_S = 90  # as systemd waits for other units
LATE = f"it is not ready after {PATIENCE_S} s"
MSG = re.compile(r'\blevel=(\w+) msg=("(?:[^"\\]|\\.)*"|\S+)(?: error=("(?:[^"\\]|\\.)*"|\S+))?')


def systemctl(*words):
    """Return the exit status; raises TimeoutExpired."""
    return run("systemctl", *words).returncode


def run(*argv):
    """Run a program, for no longer than PATIENCE_S."""
    return subprocess.run(
        argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE_S, check=False
    )


def attempt(verb):
    """Return "", or what became of docker."""
    try:
        return "it ended at its start" if systemctl(verb, UNIT) else ""
    except subprocess.TimeoutExpired:
        return LATE


def reason(lines):
    """Return why dockerd ended, of the lines that it wrote; "" where they do not say.

    A line without a level is what its main program says last; in one of the log an error says why, then a
    warning.
    """
    said = {}
    for line in filter(None, map(str.strip, lines)):
        found = MSG.search(line)
        level = found.group(1) if found else "fatal"
        said[level] = ": ".join(plain(part) for part in found.groups()[1:] if part) if found else line
    return next((said[level] for level in ("fatal", "error", "warning") if level in said), "")


def plain(word):
    """Return a value of the log without its quotes."""
    try:
        return str(json.loads(word)) if word.startswith('"') else word
    except ValueError:
        return word.strip('"')


def main(verb):
    """Do it and tell."""
    began = time.time()
    # Else systemd refuses where docker failed some times within a minute, for a reason that may be gone.
    systemctl("reset-failed", UNIT, "docker.socket")
    how = attempt(verb)
    # It may have waited for a start from before its configuration was mended.
    if how == LATE and verb == "start":
        how = attempt("restart")
    if not how:
        return 0
    since = f"--since=@{int(began)}"
    written = run("journalctl", f"_SYSTEMD_UNIT={UNIT}", since, "--output=cat", "--lines=200")
    why = reason(written.stdout.decode(errors="replace").splitlines())
    print(f"{how}, {why}" if why else how, file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
