"""What a workload that runs in containers says of its source, image, container and data, checked. Pure.

All of it becomes words of scripts. They are quoted there; here is refused what a program would still take for
something else, such as an option for the name of an image, and what would hand the host to the container.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from runner import placeholders
from runner.model import Container, Dataset, Image, Source, Workload
from runner.names import hint, is_name, shown

_REPOSITORY = re.compile(
    r"(?:(?:https?|ssh|git)://|[A-Za-z0-9][\w.-]*@)[A-Za-z0-9][\w.~:/@%+-]*|file:///[\w./+-]+", re.ASCII
)
_COMMIT = re.compile(r"[0-9a-f]{7,64}")
_PART = r"[a-z0-9]+(?:[._-]+[a-z0-9]+)*"
_IMAGE = re.compile(
    rf"(?:[A-Za-z0-9][A-Za-z0-9.-]*(?::[0-9]{{1,5}})?/)?{_PART}(?:/{_PART})*"
    r"(?::\w[\w.-]{0,127})?(?:@sha256:[0-9a-f]{64})?",
    re.ASCII,
)
_FULL_PATH = re.compile(r"(?:/[\w.+-]+)+|/", re.ASCII)
_BELOW = re.compile(r"(?:/[\w.+-]+)*", re.ASCII)
_VALUE = re.compile(r"[\w.][\w./:=,@+-]*", re.ASCII)
_ARCHITECTURE = re.compile(r"sm_[1-9][0-9]{1,2}")
_DRIVER = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,6}){0,3}")
_SUMS = {"md5": re.compile(r"(?:[0-9a-f]{32})?"), "sha256": re.compile(r"(?:[0-9a-f]{64})?")}

# Options that a workload may give; True: it takes a value. None opens the host to the container.
RUN = {
    **dict.fromkeys(("--shm-size", "--ulimit", "--ipc", "--memory", "--memory-swap", "--cpus"), True),
    **dict.fromkeys(("--cpuset-cpus", "--cpuset-mems", "--pids-limit", "--cap-add"), True),
    "--init": False,
}
CAPABILITIES = ("IPC_LOCK", "SYS_NICE", "SYS_PTRACE")
BUILD = {
    **dict.fromkeys(("--file", "--tag", "--build-arg", "--target", "--platform", "--network"), True),
    **{"--pull": False, "--no-cache": False},
}
# The commands of docker that make an image: their options, and how many words stand behind those.
COMMANDS: Mapping[str, tuple[Mapping[str, bool], int]] = {
    "build": (BUILD, 1),
    "pull": ({"--platform": True}, 1),
    "tag": ({}, 2),
}
OURS = ("/runkit", "/tmp/runkit", "/proc", "/sys", "/dev")  # noqa: S108 - what runkit and the engine put there


def problems(made: Workload) -> Iterator[str]:
    """Say what is wrong beyond the types, the first problem first."""
    for i, source in enumerate(made.sources):
        yield from _source_problems(f"sources[{i}]", source)
    checkouts = [source.checkout for source in made.sources]
    if len(set(checkouts)) < len(checkouts):
        yield "sources: a checkout stands twice; each needs a folder of its own"
    yield from _image_problems(made.image) if made.image else ()
    yield from _container_problems(made.container) if made.container else ()
    for i, data in enumerate(made.data):
        yield from _data_problems(f"data[{i}]", data)
    for word in made.limits.architectures:
        if not _ARCHITECTURE.fullmatch(word):
            yield f"limits.architectures: {shown(word)}: write it as CUDA does, such as sm_70"
    if made.limits.least_driver and not _DRIVER.fullmatch(made.limits.least_driver):
        yield f"limits.least_driver: {shown(made.limits.least_driver)}: write a version, such as 450.80.02"


def _source_problems(key: str, source: Source) -> Iterator[str]:
    if not _REPOSITORY.fullmatch(source.repository):
        yield f"{key}.repository: {shown(source.repository)}: write an address, such as https://HOST/PATH.git"
    if not _COMMIT.fullmatch(source.commit):
        yield f"{key}.commit: {shown(source.commit)}: write its hexadecimal name; tags and branches move"
    if not is_name(source.checkout):
        yield f"{key}.checkout: {shown(source.checkout)}: must be a name of letters, digits, . _ and -"
    if source.folder and not all(map(is_name, source.folder.split("/"))):
        yield f"{key}.folder: {shown(source.folder)}: must be a path below the checkout, its names without .."


def _image_problems(image: Image) -> Iterator[str]:
    for key, text in (("name", image.name), ("base", image.base)):
        if not _IMAGE.fullmatch(text) or len(text) > 255:
            yield f"image.{key}: {shown(text)}: must be the name of an image, such as group/name:tag"
    for i, argv in enumerate(image.build):
        key = f"image.build[{i}]"
        for word in argv:
            yield from placeholders.problems(key, word, ("image",))
        if argv[:1] != ("docker",) or len(argv) < 2 or argv[1] not in COMMANDS:
            known = ", ".join(f"docker {word}" for word in COMMANDS)
            yield f"{key}: {shown(' '.join(argv))}: must be one of {known}; a Dockerfile has all other steps"
        else:
            yield from _word_problems(key, argv[2:], *COMMANDS[argv[1]])


def _word_problems(key: str, words: Sequence[str], known: Mapping[str, bool], operands: int) -> Iterator[str]:
    """Of options and their values, and the number of ``operands`` behind them."""
    rest = list(words)
    while rest and rest[0].startswith("-"):
        name, equals, value = rest.pop(0).partition("=")
        if name not in known:
            yield f"{key}: {shown(name)} is none that a workload may give; {hint(name, known)}"
        elif known[name]:
            yield from _value_problems(key, name, value if equals else rest.pop(0) if rest else "")
        elif equals:
            yield f"{key}: {name} takes no value"
    for word in rest[:operands]:
        yield from _value_problems(key, "a word", word)
    if len(rest) != operands:
        yield f"{key}: {shown(' '.join(rest))}: {len(rest)} words that are no options, must be {operands}"


def _value_problems(key: str, name: str, value: str) -> Iterator[str]:
    if not _VALUE.fullmatch(placeholders.filled(value, "x")) or ".." in value:
        text = "must have letters, digits and . _ / : = , @ + - alone, and no / first"
        yield f"{key}: {name}: {shown(value)}: {text}"
    if name == "--cap-add" and value not in CAPABILITIES:
        yield f"{key}: --cap-add: {shown(value)} is none a workload may give; {hint(value, CAPABILITIES)}"


def _container_problems(container: Container) -> Iterator[str]:
    if not _FULL_PATH.fullmatch(container.workdir):
        text = "must be a full path, its names of letters, digits, . _ + -"
        yield f"container.workdir: {shown(container.workdir)}: {text}"
    for i, text in enumerate(container.options):
        yield from placeholders.problems(f"container.options[{i}]", text, ())
    yield from _word_problems("container.options", container.options, RUN, 0)
    insides = []
    for i, text in enumerate(container.mounts):
        key = f"container.mounts[{i}]"
        yield from placeholders.problems(key, text, ("data", *placeholders.OF_THE_CELL))
        yield from _mount_problems(key, text)
        insides.append(text.split(":")[1:2])
    if any(inside in insides[:i] for i, inside in enumerate(insides)):
        yield "container.mounts: two have the same place in the container"
    for name, text in container.env.items():
        if not name.isidentifier() or not name.isascii() or name.startswith("RUNKIT_"):
            yield f"container.env: {shown(name)}: must be a name of letters, digits and _, not RUNKIT_..."
        yield from placeholders.problems(f"container.env.{name}", text)


def _mount_problems(key: str, text: str) -> Iterator[str]:
    """A mount brings a data set; anything else of a host is none of a workload's business."""
    host, _, rest = placeholders.filled(text.removeprefix("{data}"), "x").partition(":")
    inside = rest.removesuffix(":ro")
    if not _FULL_PATH.fullmatch(inside):
        yield f"{key}: {shown(text)}: write {{data}}/FOLDER:/INSIDE or {{data}}/FOLDER:/INSIDE:ro"
    elif not text.startswith("{data}") or not _BELOW.fullmatch(host) or ".." in host:
        link = "what lies elsewhere on the hosts can be a link there"
        yield f"{key}: {shown(text)}: a workload mounts what is below {{data}}, its cluster_data_root; {link}"
    elif inside == "/" or ".." in inside or any(f"{inside}/".startswith(f"{ours}/") for ours in OURS):
        yield f"{key}: {shown(inside)}: must be a folder of the container that neither it nor runkit needs"


def _data_problems(key: str, data: Dataset) -> Iterator[str]:
    if not is_name(data.folder):
        yield f"{key}.folder: {shown(data.folder)}: must be a name of letters, digits, . _ and -"
    for i, archive in enumerate(data.archives):
        at = f"{key}.archives[{i}]"
        if not is_name(archive.name):
            yield f"{at}.name: {shown(archive.name)}: must be a file name of letters, digits, . _ and -"
        for field, form in _SUMS.items():
            if not form.fullmatch(getattr(archive, field)):
                yield f"{at}.{field}: {shown(getattr(archive, field))}: write all its hexadecimal digits"
        if archive.size < 0:
            yield f"{at}.size: must not be negative"
