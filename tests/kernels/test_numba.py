"""Kernels in hard surroundings: no place for a cache, forked processes, many threads."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import taskloss as tl
from taskloss.kernels import _numba


def test_without_a_cache_folder_kernels_still_work_and_warn_once(monkeypatch):
    njit = _numba.numba.njit

    def njit_without_locator(**options):
        if options.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return njit(**options)

    monkeypatch.setattr(_numba.numba, "njit", njit_without_locator)
    monkeypatch.setattr(_numba, "_warned", False)
    with pytest.warns(RuntimeWarning, match="NUMBA_CACHE_DIR"):
        add = _numba.kernel(lambda a, b: a + b)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _numba.kernel(lambda a: a)
    assert add(1, 2) == 3


def test_a_change_of_any_kernel_file_outdates_the_compiled_kernels():
    from taskloss.kernels.isotonic import _pool

    # The pooling kernel contains the terms' kernels, whose file is another one.
    assert _pool._cache._cache_file._source_stamp == _numba._source_stamp()


def loss_of(seed: int) -> tuple[float, float]:
    generator = torch.Generator().manual_seed(seed)
    target = torch.arange(3000) % 5 == 0
    scores = torch.randn(3000, generator=generator).requires_grad_()
    loss = tl.DirectLoss("average_precision")(scores, target)
    loss.backward()
    return loss.item(), scores.grad.double().norm().item()


def test_threads_give_the_same_results():
    expected = [loss_of(seed) for seed in range(16)]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(loss_of, range(16))) == expected


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_worker_can_use_the_kernels():
    expected = loss_of(0)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply_async(loss_of, (0,)).get(timeout=60) == expected


def test_results_do_not_depend_on_the_thread_count():
    program = "import torch; torch.set_num_threads({}); from tests.kernels.test_numba import loss_of; print(loss_of(3))"
    outputs = {
        subprocess.run([sys.executable, "-c", program.format(n)], capture_output=True, text=True, check=True).stdout
        for n in (1, 2)
    }
    assert outputs == {f"{loss_of(3)}\n"}
