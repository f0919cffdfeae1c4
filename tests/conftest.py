"""Fixtures of all tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kit import Kit


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[Kit]:
    """A cluster and a workload of this test alone; whatever it leaves is killed at the end."""
    made = Kit(tmp_path)
    yield made
    made.close()
