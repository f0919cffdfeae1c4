"""The frozen records that travel between the layers.

Nothing here reads a clock, a disk or an environment. Units are in the field names or
docstrings: seconds (``_s``), images or samples per second for rates, per-card batch sizes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

STATES = ("planned", "running", "measured", "failed", "timeout", "lost", "stopped", "refused")


# --- cluster -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Host:
    """One machine of a cluster. ``cards`` are accelerators, or process slots where it has none.

    ``address`` is where the controller reaches it, ``inner`` where other hosts do, "" where that is the same.
    """

    name: str
    address: str
    cards: int
    connection: str  # "local" or "ssh"
    inner: str = ""

    @property
    def for_others(self) -> str:
        """The address that other hosts know it by: in their hostfiles, logins, files of names."""
        return self.inner or self.address


@dataclass(frozen=True, slots=True)
class Cluster:
    """One folder under ``inventory/``; ``hosts`` in inventory order, the first is the launch host."""

    name: str
    path: str
    title: str
    hosts: tuple[Host, ...]
    card_model: str  # "" where the cards are process slots
    python: str  # the ranks' Python on every host
    mpirun: str
    agent_root: str  # where the agent keeps its runs on every host; may start with "~"
    cidr: str = ""  # the network that the ranks talk over; "" where it is not stated
    agent_python: str = "python3"  # runs the agent on every host
    interface: str = ""  # the network interface of that network, the same on every host
    fabric: str = ""  # infiniband, roce or ethernet; "" where it is not stated
    port: int = 29500  # the first TCP port that frameworks' own launchers may take on the launch host
    data_root: str = "/data/runkit"  # where the data sets lie on every host
    registry: str = ""  # put before the names of images, such as "registry.example.org:5000/"
    driver: str = ""  # the GPU driver's version on the hosts; "" where it is not stated
    env: Mapping[str, str] = field(default_factory=dict)  # NCCL_*, UCX_* and the like, for every rank

    @property
    def cards(self) -> int:
        """All cards of the cluster."""
        return sum(host.cards for host in self.hosts)


# --- workload ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Mode:
    """What a cell is for. ``target`` is an accuracy in [0, 1] or None; ``estimated_s`` wall seconds.

    ``estimates`` has the seconds per number of cards where they differ: "8", or "8 fp32" for one precision.
    """

    name: str
    estimated_s: float
    target: float | None = None
    estimates: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Variant:
    """How the cells that it matches are started. An empty tuple of cards or precisions matches all."""

    modes: tuple[str, ...]
    cards: tuple[int, ...]
    precisions: tuple[str, ...]
    launcher: str
    argv: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds until the first record, between two records, and for the whole cell."""

    start_s: float
    progress_s: float
    total_s: float


@dataclass(frozen=True, slots=True)
class Source:
    """A repository at a commit: ``folder`` is the part that is used, ``patches`` the workload's files.

    ``checkout`` names the folder below the build folder of every host that it is cloned to.
    """

    repository: str
    commit: str
    checkout: str
    folder: str = ""
    patches: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Image:
    """The container image: its name, what it is made from, and the commands that make it, one argv each.

    They run in the first source's folder, in order; ``{image}`` is the name behind the cluster's registry.
    """

    name: str
    base: str
    build: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Container:
    """How a container is run: words for ``docker run``, mounts ``HOST:INSIDE[:ro]``, environment."""

    workdir: str
    options: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Archive:
    """A file to be had where its licence is accepted: checksums hexadecimal, ``size`` in bytes or 0."""

    name: str
    size: int = 0
    md5: str = ""
    sha256: str = ""


@dataclass(frozen=True, slots=True)
class Dataset:
    """What a workload reads: ``kind`` is how it is prepared, ``folder`` lies below the cluster's data root.

    ``counts`` are files or records per part as the layout must have them, ``needs_gib`` the space it takes
    on a host, ``register`` the page where its licence is accepted. ``generated``: the workload makes its own.
    """

    kind: str
    folder: str
    title: str
    licence: str
    register: str
    archives: tuple[Archive, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    needs_gib: float = 0.0
    generated: bool = False


@dataclass(frozen=True, slots=True)
class Limits:
    """What the image can run on: CUDA architectures such as sm_70, least driver and card memory."""

    architectures: tuple[str, ...] = ()
    least_driver: str = ""
    least_memory_gib: float = 0.0


@dataclass(frozen=True, slots=True)
class Correction:
    """Where the workload leaves its publication: what that says, what is done here, and why."""

    published: str
    here: str
    why: str


@dataclass(frozen=True, slots=True)
class Licence:
    """What somebody who runs the workload uses, and under which terms."""

    of: str
    terms: str


@dataclass(frozen=True, slots=True)
class Workload:
    """One file under ``workloads/``. ``files`` are paths beside it that travel to the hosts."""

    name: str
    title: str
    framework: str
    model: str
    unit: str
    family: str
    log_name: str
    precisions: tuple[str, ...]
    batch_sizes: tuple[int, ...]
    cards: tuple[int, ...]  # measured when the user names none
    modes: tuple[Mode, ...]
    variants: tuple[Variant, ...]
    deadlines: Deadlines
    files: tuple[str, ...] = ()
    path: str = ""  # of the file itself, on the controller
    about: str = ""  # a paragraph for people
    sources: tuple[Source, ...] = ()
    image: Image | None = None
    container: Container | None = None
    data: tuple[Dataset, ...] = ()
    limits: Limits = field(default_factory=Limits)
    corrections: tuple[Correction, ...] = ()
    licences: tuple[Licence, ...] = ()


# --- plan ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Placement:
    """How many ranks a cell starts on a host."""

    host: str
    ranks: int


@dataclass(frozen=True, slots=True)
class Start:
    """What is to be started: ``command`` on the hosts of ``placement``, for the cell of that id.

    ``image`` is the container's image and ``container`` how it is run, None where there is none; placeholders
    are filled in. ``placement`` counts cards.
    """

    cell: str
    placement: Sequence[Placement]
    command: Sequence[str]
    image: str = ""
    container: Container | None = None


@dataclass(frozen=True, slots=True)
class Cell:
    """One point of the matrix, with everything the agent needs to start and watch it.

    ``argv`` is relative to the run's folder on the hosts. ``progress`` is a regular expression
    (source text, matched against bytes of a log line) that is true of the records of the
    workload's family.
    """

    id: str
    workload: str
    mode: str
    cards: int
    precision: str
    batch_size: int
    repeat: int
    state: str  # "planned" or "refused"
    reason: str | None
    placement: tuple[Placement, ...]
    argv: tuple[str, ...]
    env: Mapping[str, str]
    hostfile: str | None
    unit: str
    family: str
    log_name: str
    progress: str
    deadlines: Deadlines
    estimated_s: float
    target: float | None
    scripts: Mapping[str, str] = field(default_factory=dict)  # file name in the cell's folder to its text
    listed: bool = True  # whether the workload lists this batch size


@dataclass(frozen=True, slots=True)
class Plan:
    """One invocation of ``bench``: the cells in order, and what they were planned for."""

    run: str
    created: str  # ISO 8601, UTC
    cluster: Cluster
    cells: tuple[Cell, ...]
    detached: bool
    versions: Mapping[str, str]
    commit: str | None


# --- logs ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Line:
    """One normalized line of a log: no NUL, ANSI code or MPI tag, neither CR nor LF.

    ``number`` counts lines from 1 as LF breaks them. ``rank`` and ``stream`` come from the
    first MPI tag of the line, else from the file's name, else they are None.
    """

    number: int
    text: str
    rank: int | None = None
    stream: str | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """One measurement in a log, as the log's own line states it; what it does not state is None.

    ``rate`` is in the scope of the family (see Family.scope); ``step_s`` is seconds per step;
    ``time`` is seconds since the epoch or since the start of the training, whichever the log has.
    """

    line: int
    step: int | None = None
    epoch: int | None = None
    rate: float | None = None
    step_s: float | None = None
    loss: float | None = None
    time: float | None = None
    rank: int | None = None
    done: float | None = None  # fraction of the training, in [0, 1]


@dataclass(frozen=True, slots=True)
class Problem:
    """Something in a log or a cell that a reader must know. ``line`` is None where no line is at fault."""

    code: str
    line: int | None
    detail: str


@dataclass(frozen=True, slots=True)
class LogRun:
    """One training run found in a log: the record behind ``parse --json``; see docs/contracts.md.

    ``rate`` is for all cards together, in ``unit``, by ``rule``; ``batch_size`` is per card.
    Unknown is None, never a guess; ``sources`` says "log", "name" or "option" per parameter.
    """

    log: str
    sha256: str | None
    kind: str
    family: str
    framework: str | None
    framework_version: str | None
    model: str | None
    cards: int | None
    hosts: int | None
    batch_size: int | None
    global_batch: int | None
    precision: str | None
    sources: Mapping[str, str]
    unit: str
    scope: str
    records: tuple[Record, ...]
    rate: float | None
    rule: str
    rates: Mapping[str, Any]
    time_to_train_s: float | None
    time_to_target_s: float | None
    accuracy: float | None
    complete: bool
    problems: tuple[Problem, ...]
    gpu: str | None = None
    driver: str | None = None
    nccl: str | None = None
    transport: Mapping[str, Any] | None = None  # as NCCL says it; see docs/contracts.md
    lines_not_used: Mapping[str, int] = field(default_factory=dict)  # that look like records, by reason
    steady: Mapping[str, Any] | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)  # what only this family's logs say


# --- results -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a cell: its state in one word, why, and its figures (None where unknown).

    ``rate`` in ``unit`` for all cards together; times in seconds; ``accuracy`` in [0, 1].
    """

    cell: str
    workload: str
    mode: str
    cards: int
    precision: str
    batch_size: int
    repeat: int
    state: str
    reason: str | None
    unit: str
    rate: float | None = None
    rule: str | None = None
    records: int = 0
    time_to_train_s: float | None = None
    time_to_target_s: float | None = None
    accuracy: float | None = None
    problems: tuple[Problem, ...] = ()
    listed: bool = True  # whether the workload lists this batch size
    hardware: Mapping[str, str] = field(default_factory=dict)  # part of its hosts to what it is


@dataclass(frozen=True, slots=True)
class Evidence:
    """Where a figure of a table comes from. ``row`` and ``column`` count from 0, the heading's column too.

    ``logs`` and ``sha256`` go together; a speed-up has two of each, its own and that of one card. ``lines``
    are the first and last of the ``records`` that the rule worked on, out of ``found``; () and 0 where the
    figure is the log's own. ``filled``: from a log that the publication does not name. ``unlike``: why the
    figures of a speed-up are not like for like, of the REASONS of runner.comparable.
    """

    row: int
    column: int
    cards: int
    precision: str | None
    batch_size: int | None
    shown: str
    value: float
    published: str | None
    logs: tuple[str, ...]
    sha256: tuple[str | None, ...]
    rule: str | None = None
    records: int = 0
    found: int = 0
    lines: tuple[int, ...] = ()
    problems: tuple[str, ...] = ()
    filled: bool = False
    unlike: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Table:
    """Rows ready to be shown: every cell is text, "-" where nothing was measured.

    A publication's own table has ``evidence`` for each of its figures.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    evidence: tuple[Evidence, ...] = ()
