"""Compilation of kernels: caching, outdated caches, missing caches, forked processes and threads."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numba
import numpy as np
import pytest
import torch

import taskloss as tl
from taskloss.kernels import _linking, _numba, compilation


def test_without_a_cache_folder_kernels_still_work_and_warn_once(monkeypatch):
    njit = _numba.numba.njit

    def njit_without_locator(*function, **options):
        if options.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return njit(*function, **options)

    monkeypatch.setattr(_numba.numba, "njit", njit_without_locator)
    monkeypatch.setattr(_numba, "_warned", False)
    with pytest.warns(RuntimeWarning, match="NUMBA_CACHE_DIR"):
        add = _numba.kernel(lambda a, b: a + b)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _numba.kernel(lambda a: a)
    assert add(1, 2) == 3


@_numba.inner_kernel
def _cube(x, negate):
    return -(x**3) if negate else x**3


@_numba.allocating_kernel
def _cubes(values):
    result = np.empty(len(values))
    for i in range(len(values)):
        result[i] = _cube(values[i], False)
    return result


def test_kernels_that_only_kernels_call_are_linked_into_their_callers():
    # Without a cache, so that it is compiled in every run.
    cubes, negated = numba.njit(lambda values: (_cubes(values), _cube(values[0], True)))(np.array([2.0, 3.0]))
    assert cubes.tolist() == [8.0, 27.0]
    assert negated == -8.0
    assert len(_cube.signatures) == 1, "calls with True and with False share their code"
    with pytest.raises(TypeError):
        _cubes(np.array([2.0]))


def run_program(program: str, tree: Path, cache: str) -> str:
    """Run a Python program that imports from ``tree``, with a cache folder of this name in it; return what it prints."""
    environment = {**os.environ, "PYTHONPATH": str(tree), "NUMBA_CACHE_DIR": str(tree / cache)}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=environment, cwd=tree, capture_output=True, text=True, check=True).stdout


POOLING_PROGRAM = """
import numpy as np
from taskloss.kernels.ranking.isotonic import _pool_rankings, augment_convex
from taskloss.kernels.sort import split_by_label
from taskloss.kernels.ranking.terms import AVERAGE_PRECISION
lists = split_by_label(np.linspace(1, 0, 40), (np.arange(40) % 3 == 0).astype(np.uint8), np.empty(0, np.int64), 1)
print(augment_convex(lists, AVERAGE_PRECISION, np.array([1.0]))[0].tolist(), sum(_pool_rankings.stats.cache_hits.values()))
"""


def test_a_changed_kernel_outdates_the_kernels_that_contain_it(tmp_path):
    """The pooling kernel contains kernels of another file, those of the metric's terms."""
    kernels = tmp_path / "taskloss" / "kernels"
    shutil.copytree(Path(_numba.__file__).parent, kernels, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "taskloss" / "__init__.py").touch()

    def pool(cache: str) -> tuple[str, int]:
        """Return the counts, and how often compiled code was loaded from the cache."""
        counts, hits = run_program(POOLING_PROGRAM, tmp_path, cache).rsplit(maxsplit=1)
        return counts, int(hits)

    original, hits = pool("kept")
    assert hits == 0
    assert pool("kept") == (original, 1)
    terms = kernels / "ranking" / "terms.py"
    text = terms.read_text()
    changed = text.replace("return i / (n * (n + 1.0))", "return 5.0 * i / (n * (n + 1.0))")
    assert changed != text
    terms.write_text(changed)
    counts, hits = pool("kept")
    assert hits == 0
    assert counts != original
    assert counts == pool("new")[0]


def test_kernels_outside_the_folder_of_kernels_are_outdated_by_what_they_import(tmp_path):
    """A kernel anywhere in the package is compiled again when a kernel that it imports changes, and at no other time."""
    package = tmp_path / "taskloss"
    files = {
        "__init__.py": "",
        "kernels/__init__.py": "",
        "kernels/_numba.py": Path(_numba.__file__).read_text(),
        "kernels/_linking.py": Path(_linking.__file__).read_text(),
        "kernels/compilation.py": Path(compilation.__file__).read_text(),
        "kernels/growth.py": "from taskloss.kernels._numba import kernel\n@kernel\ndef grow(x):\n    return 2.0 * x\n",
        "solver/__init__.py": "",
        "solver/steps.py": (
            "from taskloss.kernels import growth\nfrom taskloss.kernels._numba import kernel\ngrow = growth.grow\n"
            "@kernel\ndef step(x):\n    return grow(x) + 1.0\n"
        ),
        "solver/unrelated.py": "from taskloss.kernels.growth import grow\n",
    }
    for name, text in files.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text)
    program = (
        "import taskloss.solver.unrelated; from taskloss.solver.steps import step; "
        "print(step(3.0), sum(step.stats.cache_hits.values()))"
    )
    assert run_program(program, tmp_path, "cache") == "7.0 0\n"
    assert run_program(program, tmp_path, "cache") == "7.0 1\n"
    (package / "solver/unrelated.py").write_text("from taskloss.kernels.growth import grow\nSIZE = 1\n")
    assert run_program(program, tmp_path, "cache") == "7.0 1\n"
    (package / "kernels/growth.py").write_text(files["kernels/growth.py"].replace("2.0", "5.0"))
    assert run_program(program, tmp_path, "cache") == "16.0 0\n"
    assert run_program(program, tmp_path, "cache") == "16.0 1\n"


CACHED_PROGRAM = """
import numbered, pairs_of_numbers
print(numbered.add(pairs_of_numbers.Pair(1.0, 2.0)))
"""


def test_a_cache_that_names_a_missing_class_is_not_used(tmp_path):
    """As after an update of the package: the index of compiled code is a pickle, which names classes."""
    (tmp_path / "numbered.py").write_text(
        "from taskloss.kernels._numba import kernel\n@kernel\ndef add(pair):\n    return pair.one + pair[1]\n"
    )
    (tmp_path / "pairs_of_numbers.py").write_text(
        "from typing import NamedTuple\nclass Pair(NamedTuple):\n    one: float\n    other: float\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-c", CACHED_PROGRAM]
    for _ in range(2):
        assert subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout == "3.0\n"
    index = next((tmp_path / "cache").rglob("*.nbi"))
    assert b"pairs_of_numbers" in index.read_bytes()
    index.write_bytes(index.read_bytes().replace(b"pairs_of_numbers", b"pears_of_numbers"))
    assert subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout == "3.0\n"


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
