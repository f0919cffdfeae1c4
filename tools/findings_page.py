"""Write docs/findings.md from the rules of ``doctor`` (``make docs``).

usage: python tools/findings_page.py [--check]
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from runner import diagnosis  # noqa: E402 - the package lies beside
from runner.diagnosis.page import page  # noqa: E402

PAGE = ROOT / "docs" / "findings.md"


def main() -> int:
    """Return 1 with --check where the page is not what it should be."""
    text = page(diagnosis.modules())
    stale = not PAGE.is_file() or PAGE.read_text() != text
    if "--check" in sys.argv:
        print("\n".join([str(PAGE.relative_to(ROOT))] * stale), end="\n" * stale, file=sys.stderr)
        return int(stale)
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
