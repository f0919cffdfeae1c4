"""How the image of a workload is made on a host, as a script. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from runner.model import Source, Workload
from runner.placeholders import fill


def build(workload: Workload, registry: str) -> str:
    """Return the script that makes the workload's image; it lies beside ``workload/``, where the patches are.

    Its checkouts go below ``$RUNKIT_BUILD``, else ``build`` beside it; it can be repeated.
    """
    assert workload.image is not None, "only a workload with an image has a script that makes it"
    image = registry + workload.image.name
    lines = [
        "#!/bin/sh",
        f"# Makes {image} on this host, from {workload.image.base}. For {workload.name}.",
        "set -eu",
        'here=$(cd -- "$(dirname -- "$0")" && pwd)',
        "build=${RUNKIT_BUILD:-$here/build}",
        'mkdir -p "$build"',
        *(line for source in workload.sources for line in _checked_out(source)),
    ]
    first = workload.sources[0]
    lines.append(f'cd "$build/"{shlex.quote(_below(first))}')
    lines += [shlex.join(fill(word, {"image": image}) for word in argv) for argv in workload.image.build]
    return "\n".join(lines) + "\n"


def _checked_out(source: Source) -> Iterator[str]:
    at = f'"$build/"{shlex.quote(source.checkout)}'
    yield f"[ -d {at} ] || git clone {shlex.quote(source.repository)} {at}"
    yield f"git -C {at} checkout --quiet --force {shlex.quote(source.commit)}"
    yield f"git -C {at} clean --quiet --force -d"  # what a patch added the last time
    for patch in source.patches:
        folder = f'"$build/"{shlex.quote(_below(source))}'
        yield f'git -C {folder} apply --unidiff-zero "$here/workload/"{shlex.quote(patch)}'


def _below(source: Source) -> str:
    return f"{source.checkout}/{source.folder}" if source.folder else source.checkout
