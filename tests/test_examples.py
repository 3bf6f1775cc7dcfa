"""Every example runs, and its result is as good as it claims."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).parent.parent / "examples"


TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")


def run(name: str, *arguments: str, launcher: tuple[str, ...] = ()) -> str:
    command = [sys.executable, *launcher, EXAMPLES / name, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_quickstart():
    values = dict(re.findall(r"(cross-entropy|direct AP): test AP (0\.\d+)", run("quickstart.py")))
    assert set(values) == {"cross-entropy", "direct AP"}
    assert float(values["direct AP"]) > 0.3


def test_reranking():
    output = run("reranking.py")
    means = [float(value) for value in re.findall(r"mean AP (0\.\d+)", output)]
    assert means[-1] > means[0] + 0.1
    assert "forms agree: True" in output


def test_shortest_path():
    optimal = [float(value) for value in re.findall(r"optimal paths (\d\.\d+)", run("shortest_path.py", "--epochs", "5"))]
    assert len(optimal) == 6
    assert optimal[0] < 0.1
    assert optimal[-1] > 0.7


def test_decisions():
    output = run("decisions.py", "--epochs", "20")
    excess = dict(re.findall(r"^(.*\S) +routes of new days cost +(\d+\.\d+)%", output, re.MULTILINE))
    assert list(excess) == ["squared error", "SPO+", "smoothed linear program", "direct loss"]
    assert float(excess.pop("squared error")) > 5.0
    assert max(map(float, excess.values())) < 4.5


def test_predicted_weights():
    output = run("predicted_weights.py", "--seeds", "1", "--days", "1000", "--steps", "200")
    regret = dict(re.findall(r"^(.*\S) +(\d+\.\d+) +\d+\.\d+   ", output, re.MULTILINE))
    assert len(regret) == 6
    assert float(regret["direct loss, central"]) < float(regret["squared error"]) - 0.5


def test_boosting():
    lines = re.findall(r"split (\d), (log loss|direct AP): test AP (0\.\d+) after (\d+) rounds", run("boosting.py"))
    assert [line[:2] for line in lines] == [(str(seed), name) for seed in range(3) for name in ("log loss", "direct AP")]
    assert min(float(line[2]) for line in lines) > 0.7
    assert min(int(line[3]) for line in lines if line[1] == "direct AP") > 50


@pytest.mark.parametrize(
    ("framework", "name", "launcher", "options", "epochs", "least"),
    [
        ("pytorch_lightning", "with_lightning.py", (), ("--processes", "2"), "4", 0.75),
        ("accelerate", "with_accelerate.py", TORCHRUN, (), "4", 0.75),
        ("transformers", "with_trainer.py", TORCHRUN, (), "5", 0.7),
    ],
)
def test_two_processes_train_the_network_of_one(framework, name, launcher, options, epochs, least, tmp_path):
    """float32; the batches of both runs have the same samples, and a few steps swap no two samples by rounding."""
    pytest.importorskip(framework, reason=f"{framework} comes with taskloss[examples]")
    load_file = pytest.importorskip("safetensors.torch", reason="safetensors comes with taskloss[estimators]").load_file
    one = run(name, "--epochs", epochs, "--save", tmp_path / "one")
    two = run(name, "--epochs", epochs, "--save", tmp_path / "two", *options, launcher=launcher)
    values = [float(re.search(r"test AP (0\.\d+)", output)[1]) for output in (one, two)]
    assert values[0] > least
    assert values[1] == pytest.approx(values[0], abs=1e-4)
    parameters, others = load_file(tmp_path / "one"), load_file(tmp_path / "two")
    for key, parameter in parameters.items():
        # The gradient in the biases of BERT's keys is zero but for rounding, and Adam turns rounding errors into steps.
        tolerance = 1e-3 if key.endswith("key.bias") else 1e-5
        torch.testing.assert_close(others[key], parameter, rtol=0, atol=tolerance)


def test_all_examples_are_tested():
    assert {path.name for path in EXAMPLES.glob("*.py")} == {
        "boosting.py",
        "decisions.py",
        "image_retrieval.py",
        "predicted_weights.py",
        "quickstart.py",
        "reranking.py",
        "shortest_path.py",
        "with_accelerate.py",
        "with_lightning.py",
        "with_trainer.py",
    }
