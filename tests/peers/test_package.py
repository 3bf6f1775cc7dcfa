"""The baselines and their packages are loaded only where they are used."""

from __future__ import annotations

import subprocess
import sys


def test_nothing_is_loaded_before_it_is_used():
    packages = ["cvxpy", "cvxpylayers", "moreau", "ap_perf", "libauc"]
    program = (
        "import sys, taskloss; taskloss.DirectLoss; assert 'taskloss.peers' not in sys.modules\n"
        f"import taskloss.peers; print({{*{packages}}} & set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "set()"
