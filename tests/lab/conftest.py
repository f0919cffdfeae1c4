"""Real hosts for the tests: labs of the tests' own, apart from any that a person has up."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hosts import Lab, lacks


def pytest_collection_finish(session: pytest.Session) -> None:
    """A machine that cannot host a lab fails these tests: skipped ones would look like passed ones."""
    if session.items and (lacking := lacks()) and not session.config.option.collectonly:
        pytest.exit("tests/lab: this machine cannot host a lab: " + "; ".join(lacking), returncode=1)


@pytest.fixture(scope="session")
def suffix() -> str:
    """A letter for the names of labs: tests run side by side in several processes."""
    return "abcdefgh"[int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))]


@pytest.fixture(scope="session")
def ready(tmp_path_factory: pytest.TempPathFactory, suffix: str) -> Iterator[Lab]:
    """Four provisioned hosts of Debian 12."""
    with Lab(tmp_path_factory.mktemp("labs") / f"ready{suffix}") as lab:
        lab.up("--hosts", "4")
        lab.runner("provision", check=0, timeout=280)
        yield lab


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory, suffix: str) -> Iterator[Lab]:
    """Two hosts as a data centre hands them over, one of each release."""
    with Lab(tmp_path_factory.mktemp("labs") / f"bare{suffix}") as lab:
        lab.up("--hosts", "2", "--release", "bookworm,trixie")
        yield lab
