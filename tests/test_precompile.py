"""Compilation ahead of time: what was compiled is on disk for other processes, and slow first calls are announced."""

from __future__ import annotations

import logging
import subprocess
import sys

from taskloss.kernels import _numba
from taskloss.kernels.compilation import compilation
from taskloss.precompile import compile_kernels

USUAL_CALLS = """
import torch, taskloss as tl
from taskloss.kernels.compilation import compilation
for dtype in (torch.float32, torch.float64):
    for size in (20, 3000):
        scores, target = torch.randn(size, dtype=dtype, requires_grad=True), torch.arange(size) % 3 == 0
        for name in ("average_precision", "f_score", "roc_auc", "ndcg"):
            tl.DirectLoss(name, update="negative")(scores, target.float()).backward()
            tl.StructuredHingeLoss(name)(scores, target).backward()
    tl.lp.FScoreLoss()(scores, target).backward()
c = torch.tensor([[1.0, 2.0], [2.0, 1.0]], requires_grad=True)
tl.lp.LPLayer(gradient="smoothed")(c, A_eq=torch.ones(1, 2), b_eq=torch.ones(1), lower=0.0).x.sum().backward()
print(compilation.kernels)
"""


def test_compiled_kernels_serve_other_processes():
    shares: list[float] = []
    compile_kernels(lambda share, name: shares.append(share))
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0.0, 1.0)
    assert compile_kernels().kernels == 0
    result = subprocess.run([sys.executable, "-c", USUAL_CALLS], capture_output=True, text=True, check=True)
    assert result.stdout == "0\n"


def test_a_long_compilation_is_announced_once(monkeypatch, caplog):
    njit = _numba.numba.njit
    monkeypatch.setattr(_numba.numba, "njit", lambda cache=False, **options: njit(**options))
    monkeypatch.setattr(compilation, "announced", False)
    with caplog.at_level(logging.WARNING, logger="taskloss"):
        for seconds in (0.0, 1.5, 3.0):
            monkeypatch.setattr(compilation, "seconds", seconds)
            assert _numba.kernel(lambda x: x + 1.0)(2.0) == 3.0
            assert len(caplog.records) == (seconds > 0.0)
    assert "taskloss compile" in caplog.text
