"""Every example runs as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(name: str) -> str:
    return subprocess.run([sys.executable, EXAMPLES / name], capture_output=True, text=True, check=True).stdout


def test_quickstart():
    values = dict(re.findall(r"(cross-entropy|direct AP): test AP (0\.\d+)", run("quickstart.py")))
    assert set(values) == {"cross-entropy", "direct AP"}
    assert float(values["direct AP"]) > 0.3


def test_reranking():
    output = run("reranking.py")
    means = [float(value) for value in re.findall(r"mean AP (0\.\d+)", output)]
    assert means[-1] > means[0] + 0.1
    assert "forms agree: True" in output


def test_all_examples_are_tested():
    assert {path.name for path in EXAMPLES.glob("*.py")} == {"image_retrieval.py", "quickstart.py", "reranking.py"}
