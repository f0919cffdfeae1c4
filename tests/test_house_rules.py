"""The rules of the house: layers, roles, workloads, style. A rule that is not checked here is only a wish."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
RUNNER = ROOT / "runner"
BIN = Path(sys.executable).parent

# What a value-in, value-out module must not know: no clock, no disk, no subprocess, no environment.
IMPURE = {
    *(
        "ansible_runner",
        "asyncio",
        "ctypes",
        "fcntl",
        "glob",
        "io",
        "logging",
        "multiprocessing",
        "os",
        "pathlib",
    ),
    *("random", "secrets", "shutil", "signal", "socket", "ssl", "subprocess", "sys", "tempfile", "threading"),
    *("time", "urllib"),
}
ORDER = {
    "runner.conduct",
    "runner.following",
    "runner.judging",
    "runner.bench",
    "runner.looking",
    "runner.preflight",
    "runner.gathering",
    "runner.material",
    "runner.sides",
}  # the order of the steps, and nothing else
SHELL = {"runner.io", "runner.commands", "runner.cli", "runner.__main__", *ORDER}


def modules() -> dict[str, Path]:
    found = {}
    for path in sorted(RUNNER.rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = path
    return found


def imports(path: Path) -> Iterator[str]:
    """Every name that a module imports, wherever in it; ``from a import b`` counts as a and as a.b."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield str(node.module)
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def is_in(name: str, packages: set[str]) -> bool:
    return any(name == package or name.startswith(package + ".") for package in packages)


def wrong_arrows(name: str, imported: set[str]) -> set[str]:
    """What ``name`` must not import: cli -> commands -> conduct -> io and the pure row -> model, errors."""
    if name in ("runner.cli", "runner.__main__", "runner"):
        return set()
    ours = {each for each in imported if is_in(each, {"runner"})} - {"runner"}
    if is_in(name, {"runner.commands"}):
        return {each for each in ours if is_in(each, {"runner.cli"})}
    if name in ORDER:
        return {each for each in ours if is_in(each, {"runner.cli", "runner.commands"})}
    if is_in(name, {"runner.io"}):
        low = {"runner.io", "runner.model", "runner.errors", "runner.names", "runner.records"}
        return {each for each in ours if not is_in(each, low)}
    return {each for each in ours if is_in(each, SHELL)} | {
        each for each in imported if each.split(".")[0] in IMPURE
    }


@pytest.mark.parametrize("name", sorted(modules()))
def test_imports_point_one_way(name: str) -> None:
    assert wrong_arrows(name, set(imports(modules()[name]))) == set()


def test_the_import_rule_can_fail() -> None:
    assert wrong_arrows("runner.plan", {"subprocess", "runner.io.files", "runner.model"}) == {
        "subprocess",
        "runner.io.files",
    }
    assert wrong_arrows("runner.io.files", {"runner.plan", "os"}) == {"runner.plan"}
    assert wrong_arrows("runner.conduct", {"runner.commands.bench"}) == {"runner.commands.bench"}


def test_no_import_cycle() -> None:
    known = modules()
    edges = {
        name: {each for each in imports(path) if each in known and each != name}
        for name, path in known.items()
    }
    edges = {name: targets - {"runner"} for name, targets in edges.items()}
    while leaves := {name for name, targets in edges.items() if not targets}:
        edges = {name: targets - leaves for name, targets in edges.items() if name not in leaves}
    assert edges == {}


def sources() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [ROOT / name for name in listed.stdout.splitlines() if (ROOT / name).exists()]


def shell_strings(tree: ast.AST) -> list[int]:
    """Lines of calls that hand text to a shell."""
    lines = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            shell = any(word.arg == "shell" and ast.unparse(word.value) != "False" for word in node.keywords)
            if shell or called in (
                "os.system",
                "os.popen",
                "subprocess.getoutput",
                "subprocess.getstatusoutput",
            ):
                lines.append(node.lineno)
    return lines


def test_no_shell_strings() -> None:
    assert shell_strings(
        ast.parse("import os\nos.system('true')\nrun('x', shell=True)\nrun(['x'], shell=False)")
    ) == [2, 3]
    found = {str(path.relative_to(ROOT)): shell_strings(ast.parse(path.read_text())) for path in sources()}
    assert {name: lines for name, lines in found.items() if lines} == {}


# --- roles and playbooks -------------------------------------------------------------------

ROLES = sorted(path.name for path in (ROOT / "roles").iterdir())


@pytest.mark.parametrize("role", ROLES)
def test_role_specification_equals_its_defaults(role: str) -> None:
    folder = ROOT / "roles" / role
    spec = yaml.safe_load((folder / "meta" / "argument_specs.yml").read_text())["argument_specs"]
    defaults = yaml.safe_load((folder / "defaults" / "main.yml").read_text()) or {}
    entries = {path.stem for path in (folder / "tasks").glob("*.yml")}
    assert set(spec) == entries
    stated: dict[str, object] = {}
    for entry in spec.values():
        for name, option in (entry.get("options") or {}).items():
            assert name.startswith(f"{role}_"), f"{name}: lacks the role's name"
            if "default" in option:
                assert stated.setdefault(name, option["default"]) == option["default"], (
                    f"{name}: two defaults"
                )
    assert stated == defaults


def test_roles_leave_private_names_of_others_alone() -> None:
    """A name that begins with __ROLE_ is that role's own, and may change with it."""
    taken = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in sorted((ROOT / "roles").rglob("*.yml"))
        for name in sorted(set(re.findall(r"(?<!\w)__[a-z]\w*", path.read_text())))
        if (of := [each for each in ROLES if name.startswith(f"__{each}_")])
        if path.relative_to(ROOT).parts[1] not in of
    ]
    assert taken == []


@pytest.mark.parametrize("playbook", sorted(path.name for path in (ROOT / "playbooks").glob("*.yml")))
def test_playbooks_are_lists_of_roles(playbook: str) -> None:
    text = (ROOT / "playbooks" / playbook).read_text()
    assert len(text.splitlines()) <= 70
    for play in yaml.safe_load(text):
        for task in play.get("tasks", []):
            assert set(task) <= {"name", "ansible.builtin.import_role", "vars", "when", "tags"}


# --- what newcomers read -------------------------------------------------------------------


def test_every_command_is_explained() -> None:
    readme = (ROOT / "README.md").read_text()
    for path in (RUNNER / "commands").glob("[a-z]*.py"):
        name = path.stem.replace("_", "-")
        assert f"`{name}" in readme or f"runner {name}" in readme, f"{name}: not in README.md"
        shown = subprocess.run(
            [sys.executable, "-m", "runner", name, "--help"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        assert "example: python -m runner" in shown.stdout


# --- tools that judge ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "argv",
    [
        pytest.param(["ruff", "check", "--quiet", "."], id="ruff"),
        pytest.param(["ruff", "format", "--check", "--quiet", "."], id="ruff format"),
        pytest.param(["mypy", "--no-error-summary"], id="mypy strict"),
        pytest.param(["ansible-lint", "--offline", "-q", "--nocolor"], id="ansible-lint production"),
    ],
)
def test_linter(argv: list[str]) -> None:
    done = subprocess.run([BIN / argv[0], *argv[1:]], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["agent.py", "describe.py"])
def test_what_runs_on_hosts_is_python_3_8_and_standard_library(name: str) -> None:
    path = ROOT / "roles" / "bench_agent" / "files" / name
    ast.parse(path.read_text(), feature_version=(3, 8))
    foreign = {each.split(".")[0] for each in imports(path)} - set(sys.stdlib_module_names)
    assert foreign == set()
