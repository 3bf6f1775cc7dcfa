"""Calling forms: which sample belongs to which ranking."""

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
def test_owner_is_the_ranking_that_the_values_shape_says(shape, data):
    dim = data.draw(st.integers(-len(shape), len(shape) - 1))
    grouped = data.draw(st.booleans())
    ids = data.draw(st.lists(st.sampled_from([-5, 0, 3, 10**12]), min_size=shape[dim], max_size=shape[dim]))
    groups = np.array(ids, np.int64) if grouped else None
    layout = lay_out(shape, (dim,), groups)
    axis = dim % len(shape)
    distinct = sorted(set(ids))
    assert layout.values_shape == (*shape[:axis], *([len(distinct)] if grouped else []), *shape[axis + 1 :])
    assert layout.rankings == np.prod(layout.values_shape)
    for flat, index in enumerate(np.ndindex(shape)):
        place = (distinct.index(ids[index[axis]]),) if grouped else ()
        expected = (*index[:axis], *place, *index[axis + 1 :])
        assert layout.full_owner()[flat] == (np.ravel_multi_index(expected, layout.values_shape) if expected else 0)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64, np.uint64, np.bool_])
def test_groups_of_any_integer_type(dtype):
    layout = lay_out((4,), (0,), np.array([1, 0, 1, 0], dtype))
    assert layout.owner.tolist() == [1, 0, 1, 0]
    extremes = np.array(
        [np.iinfo(dtype).max, np.iinfo(dtype).min, np.iinfo(dtype).max] if dtype != np.bool_ else [1, 0, 1], dtype
    )
    assert lay_out((3,), (0,), extremes).owner.tolist() == [1, 0, 1]
    assert lay_out((2,), (0,), extremes[[0, 0]]).values_shape == (1,)
