"""Calling forms: which sample belongs to which ranking or labeling."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskloss.layout import lay_out


@given(
    shape=st.lists(st.integers(0, 4), min_size=1, max_size=4).map(tuple),
    data=st.data(),
)
def test_owner_is_the_item_that_the_values_shape_says(shape, data):
    axes = data.draw(st.lists(st.sampled_from(range(len(shape))), min_size=1, unique=True))
    dims = [axis - data.draw(st.sampled_from([0, len(shape)])) for axis in axes]
    grouped = data.draw(st.booleans())
    samples = shape[axes[0]]
    ids = data.draw(st.lists(st.sampled_from([-5, 0, 3, 10**12]), min_size=samples, max_size=samples))
    layout = lay_out(shape, dims, np.array(ids, np.int64) if grouped else None)
    distinct = sorted(set(ids))
    sizes = {axis: size for axis, size in enumerate(shape) if axis not in axes}
    if grouped:
        sizes[axes[0]] = len(distinct)
    kept = sorted(sizes)
    assert layout.values_shape == tuple(sizes[axis] for axis in kept)
    assert layout.rankings == np.prod(layout.values_shape)
    owner = layout.full_owner()
    assert len(owner) == np.prod(shape)
    assert len(layout.owner) == (0 if layout.rankings == 1 else len(owner))
    for flat, index in enumerate(np.ndindex(shape)):
        expected = [distinct.index(ids[index[axis]]) if axis in axes else index[axis] for axis in kept]
        assert owner[flat] == (np.ravel_multi_index(expected, layout.values_shape) if expected else 0)


def test_an_image_is_one_run():
    assert lay_out((5, 3, 8, 8), (2, 3)).run_owner.tolist() == list(range(15))
    assert lay_out((2, 3, 8, 8), (0, 2, 3)).run_owner.tolist() == [0, 1, 2, 0, 1, 2]
    assert lay_out((4, 8, 8), (0, 1, 2), np.array([7, 1, 7, 1])).run_owner.tolist() == [1, 0, 1, 0]


@pytest.mark.parametrize(
    ("dims", "message"),
    [((3,), "dim=3 is out of range for scores with 3 axes"), ((-4,), "dim=-4"), ((0, -3), r"dim=\(0, -3\) names an axis twice")],
)
def test_axes_that_are_not_there_or_twice(dims, message):
    with pytest.raises(ValueError, match=message):
        lay_out((2, 3, 4), dims)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64, np.uint64, np.bool_])
def test_groups_of_any_integer_type(dtype):
    layout = lay_out((4,), (0,), np.array([1, 0, 1, 0], dtype))
    assert layout.owner.tolist() == [1, 0, 1, 0]
    extremes = np.array(
        [np.iinfo(dtype).max, np.iinfo(dtype).min, np.iinfo(dtype).max] if dtype != np.bool_ else [1, 0, 1], dtype
    )
    assert lay_out((3,), (0,), extremes).owner.tolist() == [1, 0, 1]
    assert lay_out((2,), (0,), extremes[[0, 0]]).values_shape == (1,)
