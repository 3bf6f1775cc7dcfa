"""Start of the command line: version, help, missing extras."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import taskloss
from tests.cli.running import invoke


def test_version():
    result = invoke("--version")
    assert (result.exit_code, result.stdout) == (0, f"taskloss {taskloss.__version__}\n")


def run_without(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in a new process in which ``module`` cannot be imported."""
    program = f"import sys; sys.modules[{module!r}] = None; sys.argv[0] = 'taskloss'; from taskloss.cli import main; main()"
    return subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=240)


@pytest.mark.parametrize("module", ["typer", "rich", "sklearn", "pyarrow", "jinja2"])
def test_missing_extra_is_one_clear_line(module, tmp_path: Path):
    options = ("--splits", "2", "--iterations", "1", "--jobs", "1", "--methods", "direct")
    result = run_without(module, "compare", *options, "--output", str(tmp_path / "report"))
    assert result.returncode == 1
    assert result.stderr == f"taskloss on the command line needs {module}: pip install 'taskloss[cli,estimators]'\n"
    assert result.stdout == ""


SLOW = "{'torch', 'numba', 'scipy', 'sklearn', 'pyarrow', 'lightgbm'} & set(sys.modules)"


def test_help_is_quick():
    """Importing the application, as for --help, loads none of the slow packages."""
    program = f"import sys\nfrom taskloss.cli.app import app\nprint({SLOW})"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "set()"


@pytest.mark.parametrize(
    "arguments",
    [
        ("train", "none.csv", "--target", "y"),
        ("compare", "none.csv"),
        ("predict", "no-model", "none.csv"),
        ("report", "none.json"),
    ],
)
def test_missing_file_is_named_before_anything_slow_is_loaded(arguments, tmp_path: Path):
    program = f"import sys, atexit\natexit.register(lambda: print({SLOW}))\nfrom taskloss.cli import main; main()"
    result = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, cwd=tmp_path)
    assert result.returncode == 3
    assert "none" in result.stderr or "no-model" in result.stderr
    assert result.stdout.strip() == "set()"


def test_other_import_errors_are_not_hidden():
    result = run_without("taskloss.tasks", "tasks")
    assert result.returncode == 1
    assert "Traceback" in result.stderr
