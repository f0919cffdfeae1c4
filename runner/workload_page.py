"""The page of a workload, docs/workloads/NAME.md: made of its file, plan and published figures. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence

from tabulate import tabulate

from runner.dryrun import dry_run
from runner.images import build
from runner.layouts import Grid, Layout
from runner.messages import messages
from runner.model import Cell, Cluster, Dataset, Source, Workload
from runner.tables import heading

MADE = "Made of {file} by `make docs`; edit that file."


def page(workload: Workload, cells: Sequence[Cell], cluster: Cluster, layout: Layout | None) -> str:
    """Return the page in Markdown. ``cells`` are those of ``cluster``, which the commands are shown for."""
    file = f"`workloads/{workload.name}.yml`"
    parts = [
        f"# {workload.title}",
        MADE.format(file=file),
        workload.about,
        *("## What it needs", _needs(workload), *map(_data, workload.data)),
        *("## How long it takes", _durations(cells)),
        *("## Run it", _steps(workload, cluster)),
        *("## What runs", _commands(cells), *_in_full(cells, cluster)),
        *(["## Published figures", *_published(layout)] if layout else []),
        *(["## Where it leaves the publication", _corrections(workload)] if workload.corrections else []),
        *("## Licences", _table(("of", "terms"), ((one.of, one.terms) for one in workload.licences))),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _needs(workload: Workload) -> str:
    limits, image = workload.limits, workload.image
    rows = [
        ("framework", workload.framework),
        *([("image", f"`{image.name}`, made from `{image.base}`")] if image else []),
        *((f"source {n}", _source(source)) for n, source in enumerate(workload.sources, 1)),
        ("GPU architectures", ", ".join(limits.architectures) or "any"),
        ("driver", f"{limits.least_driver} or later" if limits.least_driver else "any"),
        ("memory of a card", f"{limits.least_memory_gib:g} GiB" if limits.least_memory_gib else "any"),
    ]
    return _table(("what", "which"), rows)


def _source(source: Source) -> str:
    below = f", `{source.folder}`" if source.folder else ""
    return f"{source.repository} at `{source.commit}`{below}"


def _data(data: Dataset) -> str:
    files = ", ".join(f"`{archive.name}`" for archive in data.archives)
    parts = ", ".join(f"{count:,} {part}" for part, count in data.counts.items())
    counts = f" ({parts})" if parts else ""
    own = " The workload can make its own instead." if data.generated else ""
    made = f"{files or 'No archive'}, prepared as `{data.kind}`{counts}, {data.needs_gib:g} GiB on each host"
    return f"**{data.title}.** {made}. Licence: {data.licence}; to be had from {data.register}.{own}"


def _durations(cells: Sequence[Cell]) -> str:
    kinds = list(dict.fromkeys((cell.mode, cell.precision) for cell in cells))
    counts = sorted({cell.cards for cell in cells})
    seconds = {(cell.mode, cell.precision, cell.cards): cell.estimated_s for cell in cells}
    rows = [(*kind, *(_duration(seconds.get((*kind, count))) for count in counts)) for kind in kinds]
    return _table(
        ("mode", "precision", *(f"{count} cards" if count > 1 else "1 card" for count in counts)), rows
    )


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds / 60:.0f} min"


def _steps(workload: Workload, cluster: Cluster) -> str:
    name, hours = workload.name, [mode.name for mode in workload.modes if mode.estimated_s >= 3600]
    sizes = ",".join(map(str, workload.batch_sizes))
    whole = f"--precision {','.join(workload.precisions)} --batch-size {sizes}"
    lines = [
        f"python -m runner -i {cluster.name} data {name} --from ARCHIVES",
        f"python -m runner -i {cluster.name} bench -w {name} --dry-run --scripts SCRIPTS",
        f"sh SCRIPTS/build-{name}.sh    # on each host",
        f"python -m runner -i {cluster.name} bench -w {name} {whole}",
        *(
            f"python -m runner -i {cluster.name} bench -w {name} --mode {mode} --accept-hours"
            for mode in hours
        ),
    ]
    shown = ["```sh", *lines, "```"]
    return "\n".join(
        [*shown, "", "The image is made so:", "", "```sh", build(workload, cluster.registry) + "```"]
    )


def _commands(cells: Iterable[Cell]) -> str:
    """The last command of each cell's script, the words of the launcher aside."""
    return "\n\n".join(
        f"`{cell.id}`\n\n```sh\n{_last(cell)}\n```" for cell in cells if cell.state == "planned"
    )


def _last(cell: Cell) -> str:
    text = cell.scripts.get("node.sh")
    return text.rstrip().rpartition("\n")[2].strip() if text else shlex.join(cell.argv)


def _in_full(cells: Sequence[Cell], cluster: Cluster) -> Iterator[str]:
    """One cell of several hosts as a whole."""
    wide = [cell for cell in cells if len(cell.placement) > 1]
    if wide:
        yield "As a whole, with the container, the hosts and the environment:"
        yield f"```sh\n{dry_run(wide[-1:], cluster)}```"


def _published(layout: Layout) -> Iterator[str]:
    source = layout.source
    yield f"From {source.repository}, commit `{source.commit}`, {source.path}; `-` where it is blank."
    if layout.environment:
        yield _table(
            ("measured on", "as published"), ((one.item["en"], one.value) for one in layout.environment)
        )
    yield from map(_grid, layout.tables)


def _grid(grid: Grid) -> str:
    say = messages("en")
    heads = [
        column.heading["en"] if column.heading else heading(column.precision or "", column.batch_size or 0)
        for column in grid.columns
    ]
    rows = [
        (row.heading["en"] if row.heading else str(row.cards), *(cell.published for cell in row.cells))
        for row in grid.rows
    ]
    return f"{grid.title['en']}\n\n{_table((grid.corner['en'] or say('cards'), *heads), rows)}"


def _corrections(workload: Workload) -> str:
    return _table(
        ("published", "here", "why"), ((one.published, one.here, one.why) for one in workload.corrections)
    )


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    safe = [[text.replace("|", "\\|").replace("\n", " ") for text in row] for row in rows]
    return tabulate(safe, heads, "pipe", disable_numparse=True)
