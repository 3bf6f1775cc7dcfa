"""What a user installs: the files of the wheel, the versions that it asks for, and the facts that several files repeat."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

import taskloss

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DATA_FILES = {
    "taskloss/py.typed",
    "taskloss/datasets/page_blocks.csv",
    "taskloss/datasets/white_wine.csv",
    "taskloss/datasets/README.md",
    "taskloss/report/page.css",
    "taskloss/report/page.js",
    "taskloss/report/template.html.j2",
    *(f"taskloss/experiments/texts/{path.name}" for path in (ROOT / "src/taskloss/experiments/texts").glob("*.md")),
}


def pins(name: str) -> dict[str, str]:
    lines = [line for line in (ROOT / name).read_text().splitlines() if line and not line.startswith("#")]
    return dict(line.split("==") for line in lines)


def minima(*extras: str) -> dict[str, str]:
    requirements = PROJECT["dependencies"] + [one for extra in extras for one in PROJECT["optional-dependencies"][extra]]
    return dict(one.partition(",")[0].split(">=") for one in requirements if not one.startswith("taskloss["))


def wheel_files() -> set[str]:
    wheel = pytest.importorskip("hatchling.builders.wheel", reason="hatchling, which builds the wheel, comes with taskloss[test]")
    return {file.distribution_path for file in wheel.WheelBuilder(str(ROOT)).recurse_included_files()}


def test_the_wheel_holds_the_package_and_nothing_else():
    files = wheel_files()
    assert files >= DATA_FILES
    assert {path.split("/")[0] for path in files} == {"taskloss"}
    sources = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src/taskloss").rglob("*.py")}
    assert {path for path in files if path.endswith(".py")} == sources
    assert files - sources == DATA_FILES


def test_every_data_file_is_checked_in_the_installed_wheel():
    check = (ROOT / ".ci/check_wheel.py").read_text()
    assert all(f'"{Path(name).name}"' in check for name in DATA_FILES)


def test_git_ignores_no_file_of_the_package():
    # hatchling leaves out what git ignores.
    paths = [str(path) for path in (ROOT / "src/taskloss").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    try:
        ignored = subprocess.run(
            ["git", "check-ignore", "--stdin"], input="\n".join(paths), cwd=ROOT, capture_output=True, text=True
        )
    except FileNotFoundError:
        pytest.skip("git is not installed")
    if ignored.returncode == 128:
        pytest.skip("the sources are in no git repository")
    assert ignored.stdout == ""


def test_the_oldest_versions_are_the_declared_minima():
    assert pins("constraints-oldest.txt") == minima("estimators", "cli", "boosting", "experiments", "test")


def test_every_requirement_of_the_tests_is_pinned():
    wanted = minima("estimators", "cli", "boosting", "experiments", "examples", "test", "dev", "peers").keys()
    assert wanted == pins("constraints.txt").keys()


def test_frameworks_without_an_older_tested_version_start_at_the_pinned_one():
    """`make test-oldest` leaves them out, since they need a newer safetensors than the package."""
    newest, declared = pins("constraints.txt"), minima("examples")
    for name in declared.keys() - pins("constraints-oldest.txt").keys() - {"pillow"}:
        assert declared[name] == newest[name]


def test_the_version_is_the_same_everywhere():
    citation = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert citation is not None
    assert citation[1] == taskloss.__version__
    assert f"## [{taskloss.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def test_pre_commit_runs_what_make_lint_runs():
    makefile, hooks = (ROOT / "Makefile").read_text(), (ROOT / ".pre-commit-config.yaml").read_text()
    lint = re.search(r"^lint:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    assert lint is not None
    for tool in re.findall(r"\$\(BIN\)/(ruff check|ruff format|mypy)", lint[1]):
        assert f"entry: .venv/bin/{tool}" in hooks
    assert set(re.findall(r"repo: (\S+)", hooks)) == {"local"}
