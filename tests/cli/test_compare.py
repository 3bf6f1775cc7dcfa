"""``taskloss compare`` from the outside: table, files, JSON, exit codes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import taskloss
from taskloss.cli.app import app
from taskloss.cli.trials import split_samples
from taskloss.datasets import load_page_blocks
from taskloss.report import files

FEW = ("--seeds", "2", "--iterations", "15")


def invoke(*arguments: str):
    return CliRunner(env={"COLUMNS": "100", "NO_COLOR": "1"}).invoke(app, list(arguments))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """Output and folder of one small comparison."""
    folder = tmp_path_factory.mktemp("compare") / "report"
    result = invoke("compare", *FEW, "--output", str(folder))
    assert result.exit_code == 0, result.output
    return result.stdout, folder


def test_table_shows_the_results(finished):
    text, folder = finished
    record = json.loads((folder / "results.json").read_text())
    aps = {(run["method"], run["seed"]): run["average_precision"] for run in record["runs"]}
    lines = [re.findall(r"[\w.+-]+", line) for line in text.splitlines() if line.startswith("│")]
    rows = {cells[0]: cells[1:] for cells in lines}
    for seed in (0, 1):
        baseline, contender = aps["cross-entropy", seed], aps["direct AP", seed]
        assert rows[str(seed)] == [f"{100 * baseline:.2f}", f"{100 * contender:.2f}", f"{100 * (contender - baseline):+.2f}"]
    assert rows["mean"][1] == f"{100 * record['summary']['means']['direct AP']:.2f}"
    assert rows["spread"][0] == f"{100 * record['summary']['spreads']['cross-entropy']:.2f}"
    assert record["summary"]["verdict"] in " ".join(text.split())


def test_files_are_written_and_named(finished):
    text, folder = finished
    for name in ("index.html", "pr-curves.png", "results.json"):
        assert (folder / name).stat().st_size > 1000
        assert str(folder / name) in text
    assert len(list(folder.iterdir())) == 3


def test_runs_learn_something(finished):
    record = json.loads((finished[1] / "results.json").read_text())
    assert all(run["average_precision"] > 2 * record["positives"] / record["samples"] for run in record["runs"])
    assert record["command"] == "taskloss compare --seeds 2 --epsilon 1.0 --iterations 15"
    assert record["versions"]["taskloss"] == taskloss.__version__


def test_json_is_the_results_file_and_repeats_the_run(finished, tmp_path: Path):
    result = invoke("compare", *FEW, "--output", str(tmp_path), "--json")
    assert result.exit_code == 0
    assert result.stdout == (tmp_path / "results.json").read_text()
    assert str(tmp_path / "index.html") in result.stderr
    again, before = (json.loads(text) for text in (result.stdout, (finished[1] / "results.json").read_text()))
    for record in (again, before):
        for run in record["runs"]:
            del run["seconds"]
    assert again == before


def test_default_folder_is_in_the_current_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert invoke("compare", "--seeds", "2", "--iterations", "1").exit_code == 0
    assert (tmp_path / "taskloss-report" / "index.html").exists()


def test_number_of_threads_is_given_back(finished):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert invoke("compare", "--seeds", "2", "--iterations", "1", "--output", str(finished[1])).exit_code == 0
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_split_is_stratified_and_normal():
    features, target = load_page_blocks()
    split = split_samples(features, target, seed=1)
    sizes = [len(part.target) for part in split]
    assert sum(sizes) == len(target)
    assert sizes[2] / len(target) == pytest.approx(0.4, abs=1e-3)
    assert sizes[1] / (sizes[0] + sizes[1]) == pytest.approx(0.3, abs=1e-3)
    for part in split:
        assert part.target.float().mean().item() == pytest.approx(target.mean(), abs=1e-3)
    assert split.training.features[:, 2].median().item() == pytest.approx(0, abs=0.01)
    other = split_samples(features, target, seed=2)
    assert not torch.equal(split.training.features[:5], other.training.features[:5])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--epsilon", "0"], "above zero"),
        (["--epsilon", "nan"], "above zero"),
        (["--seeds", "1"], "--seeds"),
        (["--seeds", "many"], "--seeds"),
        (["--iterations", "0"], "--iterations"),
        (["--bogus"], "--bogus"),
    ],
)
def test_bad_options(arguments, words):
    result = invoke("compare", *arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert "Traceback" not in result.output


def test_folder_that_cannot_be_made(tmp_path: Path):
    (tmp_path / "file").write_text("in the way")
    result = invoke("compare", "--output", str(tmp_path / "file"))
    assert result.exit_code == 2
    assert "cannot make the folder" in " ".join(result.stderr.split())


def test_report_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full_disk(path: Path, content: bytes) -> Path:
        raise OSError("no space left")

    monkeypatch.setattr(files, "replace_file", full_disk)
    result = invoke("compare", "--seeds", "2", "--iterations", "1", "--output", str(tmp_path))
    assert result.exit_code == 1
    assert "Cannot write the report: no space left" in result.stderr


def test_version():
    result = invoke("--version")
    assert (result.exit_code, result.stdout) == (0, f"taskloss {taskloss.__version__}\n")


def run_without(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command line in a fresh process where ``module`` cannot be imported."""
    program = f"import sys; sys.modules[{module!r}] = None; sys.argv[0] = 'taskloss'; from taskloss.cli import main; main()"
    return subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("module", ["typer", "rich", "sklearn", "matplotlib", "jinja2"])
def test_missing_extra_is_one_clear_line(module, tmp_path: Path):
    result = run_without(module, "compare", "--seeds", "2", "--iterations", "1", "--output", str(tmp_path / "report"))
    assert result.returncode == 1
    assert result.stderr == f"taskloss on the command line needs {module}: pip install 'taskloss[cli,estimators]'\n"
    assert result.stdout == ""
    assert not (tmp_path / "report").exists()


def test_other_import_errors_are_not_hidden():
    result = run_without("taskloss.direct", "--version")
    assert result.returncode == 1
    assert "Traceback" in result.stderr
