"""What settings of a host have in common: how each is read, set, and brought back to what it was.

A kind is made of ``name`` and ``value``. ``read()`` is its state now, None where the host has no such thing;
``matches(state)`` whether that is what is wanted; ``record(state)`` what to keep of it; ``write()`` sets it;
``restore(before)`` brings back what was recorded, and does nothing where the host has no such thing any more.
What the host refuses is Refused, what cannot be done yet is Later: each one sentence. Python 3.8 or later.
"""

import os
import subprocess


class Refused(Exception):
    """The host does not take the setting."""


class Later(Exception):
    """The setting cannot be made before something else is done."""


def run(*argv):
    """Return the finished command; one that does not exist has the status 127, as in a shell."""
    environment = dict(os.environ, LC_ALL="C.UTF-8", DEBIAN_FRONTEND="noninteractive")
    try:
        return subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            env=environment,
            check=False,
        )
    except FileNotFoundError:
        return subprocess.CompletedProcess(argv, 127, "", argv[0] + " is not installed")


def do(*argv):
    """Run a command that must succeed, and return what it printed."""
    done = run(*argv)
    if done.returncode != 0:
        lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("E:")] or lines[-1:]
        raise Refused(" ".join(argv[:4]) + ": " + ("; ".join(errors) or f"status {done.returncode}"))
    return done.stdout


def text_of(path):
    """Return the text of a file without the spaces around it, None where there is none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return None


class Kind:
    """What most kinds have in common: a state that equals the value, and is recorded as it is."""

    def __init__(self, name, value=None):
        self.name, self.value = name, value

    def matches(self, state):
        return state == self.value

    def record(self, state):
        return state

    def refusal(self):
        """Say why this host cannot have the value, before anything is changed; "" where it may."""
        return ""


class File(Kind):
    """A file of ours. What was there before is kept with its mode, or which folders were not there."""

    def read(self):
        try:
            with open(self.name, encoding="utf-8") as file:
                return {"content": file.read(), "mode": f"{os.stat(self.name).st_mode & 0o7777:o}"}
        except FileNotFoundError:
            return None

    def matches(self, state):
        return state == {"content": self.value, "mode": "644"}

    def record(self, state):
        missing, folder = [], os.path.dirname(self.name)
        while not os.path.isdir(folder):
            missing.append(folder)
            folder = os.path.dirname(folder)
        return state or {"missing": missing}

    def write(self):
        os.makedirs(os.path.dirname(self.name), mode=0o755, exist_ok=True)
        self.restore({"content": self.value, "mode": "644"})

    def restore(self, before):
        if "missing" not in before:
            new = self.name + ".runkit"
            with open(new, "w", encoding="utf-8") as file:
                file.write(before["content"])
            os.chmod(new, int(before["mode"], 8))
            os.rename(new, self.name)
            return
        if os.path.exists(self.name):
            os.unlink(self.name)
        for folder in before["missing"]:
            if os.path.isdir(folder) and not os.listdir(folder):
                os.rmdir(folder)
