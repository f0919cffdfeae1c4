"""Real hosts for the tests: labs of the tests' own, apart from any that a person has up."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hosts import Lab


@pytest.fixture(scope="session")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Four provisioned hosts of Debian 12."""
    with Lab(tmp_path_factory.mktemp("labs") / "tready") as lab:
        lab.up("--hosts", "4")
        lab.runner("provision", check=0, timeout=280)
        yield lab


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Two hosts as a data centre hands them over, one of each release."""
    with Lab(tmp_path_factory.mktemp("labs") / "tbare") as lab:
        lab.up("--hosts", "2", "--release", "bookworm,trixie")
        yield lab
