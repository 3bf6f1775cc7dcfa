"""Every example runs as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(name: str, *arguments: str) -> str:
    return subprocess.run([sys.executable, EXAMPLES / name, *arguments], capture_output=True, text=True, check=True).stdout


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


def test_matching():
    right = [float(value) for value in re.findall(r"right points (\d\.\d+)", run("matching.py", "--epochs", "5"))]
    assert len(right) == 6
    assert right[0] < 0.2
    assert right[-1] > 0.9


def test_path_costs():
    output = run("path_costs.py", "--steps", "100")
    assert "active_set: 0\n" in output
    more = [float(value) for value in re.findall(r"cost (\d+\.\d+)% more", output)]
    assert more[0] > 20.0
    assert more[-1] < 2.0


def test_boosting():
    found = re.findall(r"split (\d), (log loss|direct AP): test AP (0\.\d+) after (\d+) rounds", run("boosting.py"))
    assert [row[:2] for row in found] == [(str(seed), name) for seed in range(3) for name in ("log loss", "direct AP")]
    assert min(float(row[2]) for row in found) > 0.7
    assert min(int(row[3]) for row in found if row[1] == "direct AP") > 50


def test_all_examples_are_tested():
    assert {path.name for path in EXAMPLES.glob("*.py")} == {
        "boosting.py",
        "image_retrieval.py",
        "matching.py",
        "path_costs.py",
        "quickstart.py",
        "reranking.py",
        "shortest_path.py",
    }
