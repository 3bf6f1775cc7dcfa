"""The library on a device that is not the CPU, as far as it can be tested without one: see ``tests.another_device``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "another_device"


@pytest.mark.parametrize("name", ["losses", "programs", "full_batch"])
def test_in_a_process_of_its_own(name):
    """A second device changes torch for the whole process; after a fork, for one, it has no gradients any more."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(FOLDER / f"{name}.py")]
    environment = {**os.environ, "TASKLOSS_ANOTHER_DEVICE": "1"}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=FOLDER.parent.parent)
    assert result.returncode == 0, result.stdout + result.stderr
