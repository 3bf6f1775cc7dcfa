"""Starting workers with torchrun, and what they report."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent


def start(worker: str, processes: int, folder: Path) -> subprocess.Popen[str]:
    """Start processes of a worker script, which writes its reports to a folder; they talk over a free port of the loopback."""
    root = FOLDER.parent.parent
    paths = os.pathsep.join([str(root / "src"), str(root), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths}
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    command = [*launcher, str(FOLDER / worker), str(folder)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def run(worker: str, processes: int, folder: Path) -> list[dict[str, Any]]:
    """Run a worker script in several processes, and return the report of each rank."""
    process = start(worker, processes, folder)
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 0, output
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(processes)]


def report(folder: str, rank: int, results: Any) -> None:
    """Write the report of a rank."""
    path = Path(folder, f"{rank}.json")
    path.with_suffix(".part").write_text(json.dumps(results))
    path.with_suffix(".part").replace(path)


def error_of(call: Callable[[], object]) -> list[str] | None:
    """Return the type of the error that a call raises, its message and its notes."""
    try:
        call()
    except Exception as error:
        return [type(error).__name__, str(error), *getattr(error, "__notes__", [])]
    return None
