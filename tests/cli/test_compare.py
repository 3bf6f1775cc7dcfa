"""``taskloss compare`` as a user sees it: table, files, JSON, resuming, exit codes."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import taskloss
from taskloss._processes import default_jobs
from taskloss.cli import runs
from taskloss.cli.data import DataOptions, load_samples
from taskloss.cli.metric import parse_metric
from taskloss.cli.splits import split_samples
from taskloss.report import files
from tests.cli.running import invoke, write_claims, write_queries

FEW = ("--splits", "2", "--iterations", "8", "--jobs", "1")


@pytest.fixture(scope="module")
def claims(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_claims(tmp_path_factory.mktemp("data") / "claims.csv")


@pytest.fixture(scope="module")
def finished(claims, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """Run one small comparison; return its output and its folder."""
    folder = tmp_path_factory.mktemp("compare") / "report"
    result = invoke("compare", claims, "--target", "label", *FEW, "--output", folder)
    assert result.exit_code == 0, result.output
    return result.stdout, folder


def test_table_shows_the_results(finished):
    text, folder = finished
    record = json.loads((folder / "results.json").read_text())
    assert list(record["methods"])[:5] == ["auto", "cross-entropy", "direct", "direct negative", "hinge"]
    rows = [re.split(r"\s{2,}", line.strip()) for line in text.splitlines()]
    for method in record["methods"]:
        mean, spread = record["summary"]["means"][method], record["summary"]["spreads"][method]
        (row,) = [row for row in rows if row[0] == method]
        assert row[1:3] == [f"{100 * mean:.2f}", f"{100 * spread:.2f}"]
        values = [run["value"] for run in record["runs"] if run["method"] == method]
        assert mean == pytest.approx(sum(values) / 2)
    assert record["summary"]["verdict"] in " ".join(text.split())
    for words in (
        "label is fraud",
        "id left out: it counts the rows",
        "an identifier?",
        "is read as",
        "corrected resampled",
    ):
        assert words in " ".join(text.split())


def test_files_are_written_and_named(finished):
    text, folder = finished
    for name in ("index.html", "results.json"):
        assert (folder / name).stat().st_size > 1000
        assert str(folder / name) in text.replace("\n", "")
    assert len(list(folder.iterdir())) == 2


def test_record_is_complete(finished):
    record = json.loads((finished[1] / "results.json").read_text())
    assert record["command"].startswith("taskloss compare")
    assert record["command"].endswith("claims.csv --target label --splits 2 --seed 0 --iterations 8")
    assert record["versions"]["taskloss"] == taskloss.__version__
    assert [feature["name"] for feature in record["data"]["features"]] == ["amount", "age", "branch"]
    assert record["data"]["positive"] == "fraud"
    for run in record["runs"]:
        assert run["others"]["average precision"] == run["value"]
        assert (run["thresholds"] is not None) == (run["seed"] == 0)
        assert len(run["steps"]) == len(run["learning"])
        assert [effect["column"] for effect in run["effects"]] == ["amount", "age", "branch"], "one each, whatever its encoding"
    assert "<h2>Feature effects" in (finished[1] / "index.html").read_text()


def without_seconds(text: str) -> dict:
    record = json.loads(text)
    for run in record["runs"]:
        del run["seconds"]
    return record


def test_json_is_the_results_file_and_repeats_the_run(claims, finished, tmp_path: Path):
    result = invoke("compare", claims, "--target", "label", *FEW, "--output", tmp_path, "--json")
    assert result.exit_code == 0
    assert result.stdout == (tmp_path / "results.json").read_text()
    assert str(tmp_path / "index.html") in result.stderr
    assert without_seconds(result.stdout) == without_seconds((finished[1] / "results.json").read_text())


def test_resume_takes_what_is_done(claims, finished, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    done = []
    train_and_test = runs.train_and_test

    def interrupted(name, *arguments):
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append(name)
        return train_and_test(name, *arguments)

    monkeypatch.setattr(runs, "train_and_test", interrupted)
    arguments = ("compare", claims, "--target", "label", *FEW, "--output", tmp_path)
    result = invoke(*arguments)
    assert result.exit_code == 130
    assert "interrupted. To continue: taskloss compare" in result.stderr
    assert "--resume" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["unfinished.json"]
    other = invoke(*arguments, "--seed", "5", "--resume")
    assert other.exit_code == 1
    assert "belongs to another comparison" in other.stderr

    done.clear()
    monkeypatch.setattr(runs, "train_and_test", lambda *arguments: done.append(arguments[0]) or train_and_test(*arguments))
    result = invoke(*arguments, "--resume")
    assert result.exit_code == 0, result.output
    whole = without_seconds((finished[1] / "results.json").read_text())
    assert len(done) == len(whole["runs"]) - 3
    assert without_seconds((tmp_path / "results.json").read_text()) == whole
    assert not (tmp_path / "unfinished.json").exists()


def test_damaged_journal_is_refused(claims, tmp_path: Path):
    (tmp_path / "unfinished.json").write_text("{")
    result = invoke("compare", claims, "--target", "label", *FEW, "--output", tmp_path, "--resume")
    assert result.exit_code == 3
    assert "is damaged" in result.stderr


def test_processes_give_the_same(claims, finished, tmp_path: Path):
    options = ("--splits", "2", "--iterations", "8", "--jobs", "2", "--output", tmp_path)
    result = invoke("compare", claims, "--target", "label", *options)
    assert result.exit_code == 0, result.output
    assert without_seconds((tmp_path / "results.json").read_text()) == without_seconds((finished[1] / "results.json").read_text())


def test_bundled_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    options = ("--splits", "2", "--iterations", "1", "--jobs", "1", "--methods", "direct")
    result = invoke("compare", *options)
    assert result.exit_code == 0, result.output
    assert result.stdout.index("Cortez") < result.stdout.index("Malerba")
    sizes = {"wine": (900, 20), "page-blocks": (5393, 510)}
    for name, size in sizes.items():
        record = json.loads((tmp_path / "taskloss-report" / name / "results.json").read_text())
        assert (record["data"]["samples"], record["data"]["positives"]) == size
        assert list(record["methods"]) == ["cross-entropy", "direct"]
        assert record["command"] == f"taskloss compare {name} --splits 2 --methods direct --seed 0 --iterations 1"
    assert sorted(path.name for path in tmp_path.rglob("*.json")) == ["results.json"] * 2

    one = invoke("compare", "wine", *options, "--output", "one")
    assert one.exit_code == 0, one.output
    assert (tmp_path / "one" / "index.html").exists()
    printed = invoke("compare", *options, "--json")
    assert [record["data"]["samples"] for record in json.loads(printed.stdout)] == [900, 5393]


def test_file_comes_before_a_bundled_set_of_its_name(claims, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wine").write_bytes(claims.read_bytes())
    result = invoke("compare", "wine", "--target", "label", *FEW, "--methods", "direct")
    assert result.exit_code == 0, result.output
    assert "label is fraud" in result.stdout


def test_demonstration_resumes_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    done = []
    train_and_test = runs.train_and_test

    def interrupted(name, *arguments):
        if len(done) == 5:
            raise KeyboardInterrupt
        done.append(name)
        return train_and_test(name, *arguments)

    monkeypatch.setattr(runs, "train_and_test", interrupted)
    arguments = ("compare", "--splits", "2", "--iterations", "1", "--jobs", "1", "--methods", "direct")
    assert invoke(*arguments).exit_code == 130, "in the second data set"
    assert (tmp_path / "taskloss-report" / "wine" / "index.html").exists()
    done.clear()
    result = invoke(*arguments, "--resume")
    assert result.exit_code == 0, result.output
    assert len(done) == 3, "nothing of the first data set is trained again"
    assert "Cortez" in result.stdout
    assert list(tmp_path.rglob("unfinished.json")) == []


def test_report_of_another_comparison_is_not_overwritten(claims, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    options = ("--target", "label", *FEW, "--methods", "direct")
    for output in ((), ("--output", "mine")):
        folder = tmp_path / (output[-1] if output else "taskloss-report")
        assert invoke("compare", claims, *options, *output).exit_code == 0
        before = (folder / "results.json").read_bytes()
        same = invoke("compare", claims, *options, *output)
        assert same.exit_code == bool(output), "only the default folder is written again without a word"
        before = (folder / "results.json").read_bytes()
        for more in (("--seed", "3"), ("--seed", "3", "--resume")):
            other = invoke("compare", claims, *options, *output, *more)
            assert (other.exit_code, "exists already; give --force" in other.stderr) == (1, True)
        assert (folder / "results.json").read_bytes() == before
        assert invoke("compare", claims, *options, *output, "--seed", "3", "--force").exit_code == 0
        assert (folder / "results.json").read_bytes() != before
    (tmp_path / "taskloss-report" / "results.json").write_text("{")
    assert invoke("compare", claims, *options).exit_code == 1, "it cannot be told whose it is"


def test_train_command_can_be_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The verdict ends with a command that a shell understands, whatever the names are, and that trains."""
    monkeypatch.chdir(tmp_path)
    path = write_claims(tmp_path / "my claims (2024).csv", rows=120)
    path.write_text(path.read_text().replace("label", "it's the label", 1))
    options = ("--target", "it's the label", "--positive", "ok", "--metric", "recall_at_fpr:fpr=0.1", "--missing", "x y")
    result = invoke("compare", path.name, *options, *FEW, "--methods", "direct", "--drop", "note")
    assert result.exit_code == 0, result.output
    (command,) = [line for line in result.stdout.splitlines() if line.startswith("  taskloss train ")]
    program, *words = shlex.split(command)
    assert program == "taskloss"
    for expected in (*zip(options[::2], options[1::2], strict=True), ("--drop", "note"), ("--iterations", "8")):
        assert expected in list(itertools.pairwise(words))
    assert words[1] == path.name
    trained = invoke(*words)
    assert trained.exit_code == 0, trained.output
    facts = json.loads((tmp_path / "taskloss-model" / "model.json").read_text())["facts"]
    assert (facts["target"], facts["positive"], facts["metric"]) == ("it's the label", "ok", "recall_at_fpr:fpr=0.1")
    recommended = json.loads((tmp_path / "taskloss-report" / "results.json").read_text())["summary"]["recommended"]
    assert facts["method"] == {"cross-entropy": "cross_entropy", "direct": "direct"}[recommended]


def test_without_lightgbm(claims, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from taskloss.cli import methods
    from taskloss.estimators import base

    for module in (methods, base):
        monkeypatch.setattr(module, "lightgbm_is_installed", lambda: False)
    result = invoke("compare", claims, "--target", "label", *FEW, "--output", tmp_path)
    assert result.exit_code == 0, result.output
    text = " ".join(result.stdout.split())
    for label in ("LightGBM", "random forest", "direct LightGBM"):
        assert f"{label} is left out: LightGBM is not installed, and auto goes without trees: pip install" in text
    assert "LightGBM was not compared, so how it does on these data is not known." in text


@pytest.mark.parametrize("metric", ["f_score", "roc_auc", "recall_at_fpr:fpr=0.1"])
def test_other_metrics(claims, metric, tmp_path: Path):
    result = invoke("compare", claims, "--target", "label", *FEW, "--metric", metric, "--output", tmp_path)
    assert result.exit_code == 0, result.output
    record = json.loads((tmp_path / "results.json").read_text())
    assert all(0 <= run["value"] <= 1 for run in record["runs"])
    if metric == "f_score":
        assert all(run["value"] == run["others"][parse_metric("f_score").label] for run in record["runs"])


def test_queries(tmp_path: Path):
    path = write_queries(tmp_path / "docs.svm")
    for metric in ("graded_ndcg", "average_precision"):
        result = invoke("compare", path, *FEW, "--metric", metric, "--output", tmp_path / metric)
        assert result.exit_code == 0, result.output
        record = json.loads((tmp_path / metric / "results.json").read_text())
        assert record["data"]["groups"] == 15
        assert list(record["methods"])[-3:] == ["LightGBM", "random forest", "direct LightGBM"]
        assert all(run["curves"] is None for run in record["runs"])
    assert "relevant, of 15 queries" in result.stdout


@pytest.mark.parametrize("metric", ["average_precision", "f_score"])
def test_boosting_on_the_metric(claims, tmp_path: Path, metric):
    result = invoke(
        *("compare", claims, "--target", "label", *FEW, "--metric", metric),
        *("--methods", "lightgbm,direct-lightgbm", "--output", tmp_path),
    )
    assert result.exit_code == 0, result.output
    record = json.loads((tmp_path / "results.json").read_text())
    assert list(record["methods"]) == ["cross-entropy", "direct", "LightGBM", "direct LightGBM"]
    own, direct = ([run for run in record["runs"] if run["method"] == name] for name in ("LightGBM", "direct LightGBM"))
    assert len(own) == len(direct) == 2
    assert all(50 < run["best_step"] <= max(run["steps"]) for run in direct)  # after the warm-up


def test_method_that_fails_is_left_out(claims, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from taskloss.cli import methods

    fit = methods._fit_estimator

    def failing(method, *arguments):
        if method.name == "hinge":
            raise ValueError("too large")
        return fit(method, *arguments)

    monkeypatch.setattr(methods, "_fit_estimator", failing)
    result = invoke("compare", claims, "--target", "label", *FEW, "--methods", "hinge", "--output", tmp_path)
    assert result.exit_code == 0, result.output
    assert "hinge is left out: too large" in result.stdout
    assert list(json.loads((tmp_path / "results.json").read_text())["methods"]) == ["cross-entropy", "direct"]
    monkeypatch.setattr(methods, "_fit_estimator", lambda *_: (_ for _ in ()).throw(ValueError("no good")))
    result = invoke("compare", claims, "--target", "label", *FEW, "--output", tmp_path, "--force")
    assert result.exit_code == 3
    assert "cross-entropy cannot be trained on these data: no good" in result.stderr


def test_number_of_threads_is_given_back(claims, tmp_path: Path):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        options = ("--splits", "2", "--iterations", "1", "--jobs", "1", "--methods", "direct")
        assert invoke("compare", claims, "--target", "label", *options, "--output", tmp_path).exit_code == 0
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_split_is_stratified_and_its_encoder_sees_the_training_rows_only(claims):
    samples = load_samples(DataOptions(claims, target="label"))
    training, test = split_samples(samples, seed=1)
    assert len(training.target) + len(test.target) == len(samples.target)
    assert len(test.target) / len(samples.target) == pytest.approx(0.4, abs=0.01)
    assert training.target.mean() == pytest.approx(test.target.mean(), abs=0.02)
    other, _ = split_samples(samples, seed=2)
    assert not (training.features[:5] == other.features[:5]).all()
    # Missing ages are filled with the median of the training rows.
    ages, gaps = training.features[:, 1], training.features[:, 2] == 1
    import numpy as np

    assert set(ages[gaps]) == {np.float32(np.median(ages[~gaps].astype(float)))} or np.allclose(
        ages[gaps], np.median(ages[~gaps]), atol=1e-6
    )


def test_sample_of_a_large_file(tmp_path: Path):
    path = write_claims(tmp_path / "claims.csv", rows=400)
    samples = load_samples(DataOptions(path, target="label"), max_rows=150, seed=3)
    assert samples.card.samples == len(samples.target) == samples.table.rows == 150
    assert "a random sample of 150 of 400 rows" in " ".join(samples.card.notices)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--splits", "1"], 2, "--splits"),
        (["--splits", "many"], 2, "--splits"),
        (["--iterations", "0"], 2, "--iterations"),
        (["--seed", "-1"], 2, "--seed"),
        (["--bogus"], 2, "--bogus"),
        (["--metric", "nonsense"], 2, "--metric 'nonsense' is not known for two classes; expected one of average_precision"),
        (["--metric", "multi_class"], 2, "is for several classes, not for two classes; did you mean zero_one?"),
        (["--metric", "graded_ndcg"], 2, "is for queries, not for two classes"),
        (["--metric", "precision_at_k:k=-3"], 2, "precision_at_k:k=-3"),
        (["--metric", "precision_at_k:kk=3"], 2, "Its settings are"),
        (["--metric", "precision_at_k:3"], 2, "expected name=value"),
        (["--methods", "magic"], 2, "'magic' is not known; expected some of auto, cross_entropy"),
        (["--methods", "lp", "--metric", "average_precision"], 2, "method='lp' has no loss for AveragePrecision"),
        (["--methods", "direct_positive", "--metric", "roc_auc"], 2, "for ROC AUC, direct_positive is the same as direct"),
        (["--format", "xls"], 2, "--format 'xls' is not known"),
        (["--target", "lable"], 3, "has no column 'lable'; did you mean 'label'?"),
        (["--target", "note"], 3, "240 different labels, more than 100"),
        (["--positive", "maybe"], 3, "has no label 'maybe'"),
        (["--group", "label"], 2, "name the same column"),
        (["--drop", "nothing"], 3, "has no column 'nothing'"),
        (["--categorical", "nothing"], 3, "has no column 'nothing'"),
        (["--encoding", "klingon"], 3, "no encoding is called"),
    ],
)
def test_bad_options(claims, arguments, code, words, tmp_path: Path):
    target = [] if "--target" in arguments else ["--target", "label"]
    result = invoke("compare", claims, *target, *FEW, "--output", tmp_path, *arguments)
    assert result.exit_code == code, result.output
    assert words in " ".join(result.stderr.split())
    assert "Traceback" not in result.output


def test_target_must_be_named(claims, tmp_path: Path):
    result = invoke("compare", claims, "--output", tmp_path)
    assert result.exit_code == 2
    assert "--target is missing" in result.stderr


def test_too_few_positives(tmp_path: Path):
    path = tmp_path / "few.csv"
    path.write_text("x,y\n" + "".join(f"{n % 7},{int(n < 4)}\n" for n in range(60)))
    result = invoke("compare", path, "--target", "y", "--output", tmp_path)
    assert result.exit_code == 3
    assert "only 4 samples of the rarer class" in result.stderr


def test_no_file(tmp_path: Path):
    result = invoke("compare", tmp_path / "none.csv", "--target", "y", "--output", tmp_path)
    assert result.exit_code == 3
    assert "No such file" in result.stderr


def test_folder_that_cannot_be_made(claims, tmp_path: Path):
    (tmp_path / "file").write_text("in the way")
    result = invoke("compare", claims, "--target", "label", "--output", tmp_path / "file")
    assert result.exit_code == 1
    assert "File exists" in result.stderr


def test_report_that_cannot_be_written(claims, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full_disk(path: Path, content: bytes) -> Path:
        raise OSError("no space left")

    monkeypatch.setattr(files, "replace_file", full_disk)
    options = ("--splits", "2", "--iterations", "1", "--jobs", "1", "--methods", "direct")
    result = invoke("compare", claims, "--target", "label", *options, "--output", tmp_path)
    assert result.exit_code == 1
    assert "no space left" in result.stderr
    assert (tmp_path / "unfinished.json").exists(), "the runs are not lost"


def test_ctrl_c_ends_the_processes(claims, tmp_path: Path):
    program = "from taskloss.cli import main\nif __name__ == '__main__': main()\n"
    (tmp_path / "program.py").write_text(program)
    arguments = [
        "compare",
        str(claims),
        "--target",
        "label",
        "--iterations",
        "100000",
        "--jobs",
        "2",
        "--output",
        str(tmp_path / "out"),
    ]
    process = subprocess.Popen(
        [sys.executable, str(tmp_path / "program.py"), *arguments],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A shell's background job, such as a whole test run may be, ignores Ctrl-C and hands that down.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        deadline = time.monotonic() + 240
        while len(children(process.pid)) < 3 and time.monotonic() < deadline:
            time.sleep(0.2)
        workers = children(process.pid)
        assert workers, "the runs have begun"
        # A person presses Ctrl-C again if nothing happens: Python may lose the first one, within an import or a callback.
        for _ in range(3):
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
                break
        assert process.wait(20) == compare_interrupted()
        assert "To continue: taskloss compare" in process.stderr.read()
        deadline = time.monotonic() + 30
        while any(Path(f"/proc/{worker}").exists() for worker in workers) and time.monotonic() < deadline:
            time.sleep(0.2)
        assert not any(Path(f"/proc/{worker}").exists() for worker in workers)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


def compare_interrupted() -> int:
    from taskloss.cli.errors import INTERRUPTED

    return INTERRUPTED


def children(pid: int) -> list[int]:
    """Return the direct children of a process (Linux only)."""
    pids = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == pid:
                pids.append(int(entry.name))
    return pids


def test_default_jobs():
    assert 1 <= default_jobs() <= 4
