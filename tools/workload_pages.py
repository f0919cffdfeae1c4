"""Write docs/workloads/NAME.md for each workload that runs in containers (``make docs``).

usage: python tools/workload_pages.py [--check]
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from runner import catalog, layouts, parsers, plan, workload_page  # noqa: E402 - the package lies beside
from runner.io import inventory, workloads, yamlfile  # noqa: E402
from runner.model import Workload  # noqa: E402

CLUSTER = "v100x32"  # the hosts of the publications


def pages() -> dict[Path, str]:
    """The pages there should be, path to text."""
    cluster = inventory.outline(CLUSTER)
    progress = {name: family.progress for name, family in parsers.families().items()}
    made = {}
    for name in workloads.names():
        workload = load(name)
        if workload.image is None:
            continue
        asked = plan.Overrides(
            modes=tuple(mode.name for mode in workload.modes),
            precisions=workload.precisions,
            batch_sizes=workload.batch_sizes,
            hours=True,
        )
        cells = plan.cells([workload], cluster, asked, progress)
        made[ROOT / "docs" / "workloads" / f"{name}.md"] = workload_page.page(
            workload, cells, cluster, reference(name)
        )
    return made


def load(name: str) -> Workload:
    """The workload of that name."""
    families = sorted(parsers.families())
    return workloads.load(
        name, lambda stem, document, place: catalog.workload(stem, document, families, place)
    )


def reference(name: str) -> layouts.Layout | None:
    """The published report of the same name, where there is one."""
    path = ROOT / "reports" / "references" / f"{name}.yml"
    return layouts.load(yamlfile.read(path), str(path)) if path.is_file() else None


def main() -> int:
    """Return 1 with --check where a page is not what it should be."""
    stale = [path for path, text in pages().items() if not path.is_file() or path.read_text() != text]
    for path in stale:
        print(path.relative_to(ROOT), file=sys.stderr)
    if "--check" in sys.argv:
        return 1 if stale else 0
    for path, text in pages().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
