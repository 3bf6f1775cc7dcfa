"""Small random images in the cache of an experiment, in the place of those that it would decode."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from taskloss.experiments.image_training import cache_path
from taskloss.experiments.journal import Journal
from taskloss.experiments.runner import Files, Runner

SIDE = 8


def write_images(cache: Path, names: Iterable[str], classes: int = 10, number: int = 120, tested: int = 40) -> Files:
    """Write images whose brightness grows with their class, so that a network can learn them."""
    rng = np.random.default_rng(0)
    files = Files(None, cache)
    cache.mkdir(parents=True, exist_ok=True)
    for name in names:
        arrays = {}
        for part, count in (("", number), ("test ", tested)):
            labels = np.arange(count) % classes
            noise = rng.integers(0, 100, (count, 3, SIDE, SIDE))
            arrays[f"{part}pixels"] = (noise + 150 * labels[:, None, None, None] // classes).astype(np.uint8)
            arrays[f"{part}labels"] = labels.astype(np.int64)
        np.savez(cache_path(files, name, SIDE), **arrays)
    return files


def make_runner(files: Files) -> Runner:
    @contextmanager
    def show(stage, total):
        yield lambda done, text, left: None

    return Runner(Journal(files.cache / "journal.jsonl"), files, jobs=1, show=show)
