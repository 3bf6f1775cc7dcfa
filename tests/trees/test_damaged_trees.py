"""No edited file of trees crashes, loops or reads outside its arrays: it is refused, or its scores are finite."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from taskloss._storage import read_tensors, write_tensors
from taskloss.trees import Forest
from tests.trees.forests import random_booster, random_table, three_leaves, unusual_table, walked_scores

EXTREME_FLOATS = [0.0, -1.0, 1e-300, 1e308, -1e308, np.finfo(np.float64).max, np.inf, -np.inf, np.nan]


def extremes(tensor: torch.Tensor) -> list[float]:
    if tensor.dtype.is_floating_point:
        return EXTREME_FLOATS
    bounds = torch.iinfo(tensor.dtype)
    usual = [x for x in (-1000, -4, -3, -2, -1, 0, 1, 2, 3, 4, 7, 1000) if bounds.min <= x <= bounds.max]
    return [bounds.min, bounds.min + 1, *usual, bounds.max - 1, bounds.max]


def accepted(tensors: dict[str, torch.Tensor], features: int, table: np.ndarray) -> bool:
    """Whether the trees are accepted; their scores are then finite and those of a walk that checks every index."""
    try:
        forest = Forest.from_tensors(tensors, features=features)
    except ValueError as error:
        assert str(error).startswith("the trees cannot be used: ")  # noqa: PT017 (many of these are accepted)
        return False
    scores = forest.raw_scores(table)
    assert np.isfinite(scores).all()
    np.testing.assert_array_equal(scores.reshape(len(table), -1), walked_scores(forest, table))
    return True


@pytest.mark.parametrize("seed", range(8))
def test_edits_of_single_numbers(seed: int):
    rng = np.random.default_rng(seed)
    table, categorical = random_table(rng)
    forest = three_leaves() if seed == 0 else Forest.from_lightgbm(random_booster(rng, table, categorical), 2)
    rows = unusual_table(rng, forest, 4)
    kept = 0
    for name, tensor in forest.tensors().items():
        places = rng.permutation(tensor.numel())[:12]
        for place in places:
            for value in extremes(tensor):
                tensors = forest.tensors()
                tensors[name].view(-1)[place] = value
                kept += accepted(tensors, forest.features, rows)
    assert kept > 0


def test_edits_of_several_numbers():
    """Such edits can agree with each other, as two swapped children do."""
    rng = np.random.default_rng(0)
    booster = random_booster(rng, *random_table(rng))
    forest = Forest.from_lightgbm(booster, 2)
    rows = unusual_table(rng, forest, 4)
    for _ in range(1000):
        tensors = forest.tensors()
        tensor = tensors[str(rng.choice([name for name in tensors if tensors[name].numel()]))].view(-1)
        places = torch.from_numpy(rng.integers(0, len(tensor), 4))
        tensor[places] = tensor[places.flip(0)]
        accepted(tensors, forest.features, rows)


def test_edits_of_bytes_of_a_file(tmp_path: Path):
    rng = np.random.default_rng(0)
    path = write_tensors(tmp_path / "trees.safetensors", three_leaves().tensors(), {})
    content = path.read_bytes()
    rows = unusual_table(rng, three_leaves(), 4)
    for place in range(len(content)):
        for value in (content[place] ^ 1, int(rng.integers(256))):
            path.write_bytes(content[:place] + bytes([value]) + content[place + 1 :])
            try:
                tensors, _ = read_tensors(path)
            except ValueError:
                continue
            accepted(tensors, 2, rows)


def edited(name: str, value: object) -> Callable[[dict[str, torch.Tensor]], None]:
    def edit(tensors: dict[str, torch.Tensor]) -> None:
        tensors[name] = torch.as_tensor(value, dtype=tensors[name].dtype)

    return edit


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda tensors: tensors.pop("feature"), "expected the tensors .* got"),
        (lambda tensors: tensors.update(more=torch.zeros(1)), "expected the tensors .* got .*more"),
        (lambda tensors: tensors.update(feature=torch.zeros(2)), "feature must be a tensor of torch.int32, got torch.float32"),
        (edited("splits", [2]), r"splits must have shape \(iterations, outputs\).*got \(1,\)"),
        (edited("splits", np.empty((0, 2**40))), "splits must have shape .* at least one tree"),
        (edited("splits", [[3]]), "splits must be from 0 to 2, got 3"),
        (edited("splits", [[1]]), "splits must add up to the 2 splits of feature, got 1"),
        (edited("feature", 0), r"feature must have shape \(1,\), got \(\)"),
        (edited("feature", [0]), r"threshold must have shape \(1,\), got \(2,\)"),
        (edited("feature", [0, 2]), "feature must be from 0 to 1, got 2"),
        (edited("feature", [-1, 0]), "feature must be from 0 to 1, got -1"),
        (edited("threshold", [np.nan, 0]), "threshold must be a number, got NaN"),
        (edited("zero_left", [2, 0]), "zero_left must be from 0 to 1, got 2"),
        (edited("nan_left", [0, 255]), "nan_left must be from 0 to 1, got 255"),
        (edited("children", [[1, -1]]), r"children must have shape \(2, 2\), got \(1, 2\)"),
        (edited("children", [[1, -1], [-2, -4]]), "children must be splits or leaves of their own tree, got -4"),
        (edited("children", [[2, -1], [-2, -3]]), "children must be splits or leaves of their own tree, got 2"),
        (edited("children", [[1, -1], [1, -3]]), "children that are splits must stand after their parent, got 1"),
        (edited("children", [[0, -1], [-2, -3]]), "children that are splits must stand after their parent, got 0"),
        (edited("children", [[1, -1], [-1, -3]]), "children must name each split and leaf once"),
        (edited("children", [[1, 1], [-1, -3]]), "children must name each split and leaf once"),
        (edited("leaf_value", [1.0, 2.0]), r"leaf_value must have shape \(3,\), got \(2,\)"),
        (edited("leaf_value", [1.0, 2.0, np.inf]), "leaf_value must be finite"),
        (edited("category_bytes", [0, 3]), "category_bytes must be from 0 to 2, got 3"),
        (edited("category_bytes", [0, -1]), "category_bytes must be from 0 to 2, got -1"),
        (edited("category_bytes", [0, 1]), r"categories must have shape \(1,\), got \(2,\)"),
    ],
)
def test_the_error_names_what_is_wrong(edit: Callable[[dict[str, torch.Tensor]], object], message: str):
    tensors = three_leaves().tensors()
    edit(tensors)
    with pytest.raises(ValueError, match=f"the trees cannot be used: {message}"):
        Forest.from_tensors(tensors, features=2)


def test_sums_that_overflow_are_refused():
    tensors = {name: torch.cat([tensor, tensor]) for name, tensor in three_leaves().tensors().items()}
    assert Forest.from_tensors(tensors, features=2).raw_scores([[2.0, 0.0]]).tolist() == [20.0]
    tensors["leaf_value"][[0, 3]] = 1e308
    with pytest.raises(ValueError, match="small enough for finite sums"):
        Forest.from_tensors(tensors, features=2)


def test_number_of_features_is_checked():
    with pytest.raises(ValueError, match="features must be a whole number of at least 1"):
        Forest.from_tensors(three_leaves().tensors(), features=0)
