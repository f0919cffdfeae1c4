"""Fixtures of all tests."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit import Kit

PROBE = Path(__file__).resolve().parent.parent / "roles" / "doctor_probe" / "files" / "probe.py"


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[Kit]:
    """A cluster and a workload of this test alone; whatever it leaves is killed at the end."""
    made = Kit(tmp_path)
    yield made
    made.close()


@pytest.fixture(scope="module")
def probe() -> Any:
    """The file that looks at a host, as a module."""
    spec = importlib.util.spec_from_file_location("probe", PROBE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:  # the folder is one that is sent to hosts
        patch.setattr(sys, "dont_write_bytecode", True)
        spec.loader.exec_module(module)
    return module
