"""The sketch of the training rows: it finds them in other files, and raises no false alarm where rows repeat anyway."""

from __future__ import annotations

import json

import numpy as np
import pytest

from taskloss.cli.training_sketch import MAX_HASHES, TrainingSketch


def draw(kind: str, rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows that never repeat, that repeat often, of which a few values make up most, or of four different kinds."""
    rng = np.random.default_rng(seed)
    features = {
        "continuous": lambda: rng.normal(size=(rows, 4)),
        "categories": lambda: rng.integers(0, 6, (rows, 4)),
        "heavy": lambda: np.minimum(rng.zipf(1.5, (rows, 1)), 10**6),
        "four": lambda: rng.integers(0, 2, (rows, 1)),
    }[kind]()
    return features.astype(np.float32), (rng.random(rows) < 0.2).astype(np.int64)


@pytest.mark.parametrize("kind", ["continuous", "categories", "heavy", "four"])
@pytest.mark.parametrize("rows", [60, 2000, 60_000])
def test_fresh_rows_raise_no_alarm(kind, rows):
    sketch = TrainingSketch.of(*draw(kind, rows, 0))
    alarms = [sketch.overlap(*draw(kind, size, seed)).is_clear for seed in range(1, 21) for size in (50, 3000)]
    assert not any(alarms)


@pytest.mark.parametrize("rows", [60, 2000, 60_000])
def test_training_rows_are_noticed(rows):
    features, target = draw("continuous", rows, 0)
    sketch = TrainingSketch.of(features, target)
    assert sketch.overlap(features, target).is_clear
    chosen = np.random.default_rng(1).choice(rows, rows // 2, replace=False)
    part = sketch.overlap(features[chosen], target[chosen])
    assert part.is_clear
    assert part.matches == part.compared
    new_features, new_target = draw("continuous", rows, 5)
    mixed = sketch.overlap(np.concatenate([new_features, features[chosen]]), np.concatenate([new_target, target[chosen]]))
    assert mixed.is_clear
    assert mixed.matches / mixed.compared == pytest.approx(1 / 3, abs=0.05)


def test_sketch_is_bounded_and_survives_a_file():
    features, target = draw("continuous", 3 * MAX_HASHES, 0)
    sketch = TrainingSketch.of(features, target)
    assert len(sketch.hashes) == MAX_HASHES
    again = TrainingSketch.from_dict(json.loads(json.dumps(sketch.to_dict())))
    assert again.overlap(features, target) == sketch.overlap(features, target)
    assert len(json.dumps(sketch.to_dict())) < 200_000
    assert sketch.overlap(features, target).compared == MAX_HASHES


@pytest.mark.parametrize("change", [{"hashes": "!"}, {"hashes": "AAA="}, {"cutoff": -1}, {"rows": "3"}, {"repeated": 10**9}])
def test_damaged_sketch(change):
    record = TrainingSketch.of(*draw("continuous", 50, 0)).to_dict()
    with pytest.raises(ValueError, match=r".+"):
        TrainingSketch.from_dict({**record, **change})
