"""Start a container: ``start_container.py ENGINE CARDS WAY...``; no registry is asked, nothing stays behind.

The image is made of two programs of the host and the libraries they need. A WAY is what an engine is told to
give a container the GPUs, as in "--gpus all"; with each of them nvidia-smi must see CARDS in the container.
Without a WAY a container starts that has no GPUs. Prints nothing where that succeeds; a sentence, and exit
status 1, where it does not. Python 3.8 or later, standard library only.
"""

import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile

PATIENCE_S = 60
LABEL = "runkit.verify=1"
PROGRAM = "/usr/bin/cat"
LOOK_AT = "/proc/self/limits"
NVIDIA = ("--env", "NVIDIA_VISIBLE_DEVICES=all", "--env", "NVIDIA_DRIVER_CAPABILITIES=utility")


class Failed(Exception):
    """What went wrong, in a sentence."""


def run(argv, stdin=b""):
    """Return what a program prints; raises Failed with its first line where it fails."""
    try:
        done = subprocess.run(argv, input=stdin, capture_output=True, timeout=PATIENCE_S, check=False)
    except OSError as error:
        raise Failed(f"{argv[0]}: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise Failed(f"{argv[0]} {argv[1]} does not end within {PATIENCE_S} s") from None
    if done.returncode:
        lines = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
        raise Failed(lines[0] if lines else f"{argv[0]} {argv[1]}: exit status {done.returncode}")
    return done.stdout.decode(errors="replace")


def quietly(argv):
    """Run a program that tidies up; whether it could is not what this is about."""
    with contextlib.suppress(Failed):
        run(argv)


def needed(programs):
    """Return the paths of the programs, of their libraries, and of what loads these."""
    listed = run(["ldd", *programs])
    return sorted({*programs, *re.findall(r"(/[^\s:]+)(?=\s\(0x)", listed)})


def image(programs):
    """Return the archive of a root file system with the programs."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", dereference=True) as tar:
        for path in needed(programs):
            tar.add(path)
        for folder in ("dev", "etc", "proc", "sys", "tmp"):
            info = tarfile.TarInfo(folder)
            info.type, info.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(info)
    return archive.getvalue()


def start(engine, made, way, cards):
    """Start a container of the image ``made``; raises Failed where it or a GPU is not there."""
    name = f"runkit-verify-{os.getpid()}"
    options = ["--rm", "--network", "none", "--name", name, *(NVIDIA if way else ()), *way.split()]
    program = ["nvidia-smi", "-L"] if way else [PROGRAM, LOOK_AT]
    try:
        seen = run([engine, "run", *options, made, *program])
    except Failed as why:
        quietly([engine, "rm", "--force", name])
        raise Failed(f"a container{way and ' with ' + way} does not start: {why}") from None
    found = len(re.findall(r"^GPU \d+: ", seen, re.MULTILINE))
    if way and found < cards:
        raise Failed(f"nvidia-smi sees {found} of {cards} GPUs in a container with {way}")


def main(engine, cards, *ways):
    """Make the image, start what is to be started, and remove it, and what an earlier call left behind."""
    programs = [PROGRAM, *filter(None, [shutil.which("nvidia-smi") if ways else None])]
    try:
        made = run([engine, "import", "--change", "LABEL " + LABEL, "-"], image(programs))
        for way in ways or ("",):
            start(engine, made.strip().splitlines()[-1], way, int(cards))
    except Failed as why:
        sys.exit(str(why))
    finally:
        quietly([engine, "image", "prune", "--force", "--filter", "label=" + LABEL])


if __name__ == "__main__":
    main(*sys.argv[1:])
