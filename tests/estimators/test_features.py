"""From a table to the input of a network."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.preprocessing import QuantileTransformer

from taskloss.estimators.features import SCALINGS, FeatureMap

tables = arrays(
    np.float64,
    st.tuples(st.integers(1, 30), st.integers(1, 4)),
    elements=st.one_of(st.integers(-3, 3).map(float), st.floats(-1e6, 1e6), st.just(np.nan)),
)


@pytest.mark.parametrize("rounded", [False, True])
def test_quantiles_are_those_of_scikit_learn(rounded):
    rng = np.random.default_rng(0)
    table = rng.lognormal(size=(300, 3))
    table = table.round() if rounded else table
    new = rng.lognormal(size=(50, 3))
    expected = QuantileTransformer(n_quantiles=300, output_distribution="normal").fit(table).transform(new)
    np.testing.assert_allclose(FeatureMap.fit(table, "quantile").transform(new), expected, rtol=1e-4, atol=1e-4)


@given(tables, tables, st.sampled_from(SCALINGS))
def test_everything_becomes_finite_and_files_keep_it(table, new, scaling):
    features = FeatureMap.fit(table, scaling)
    new = np.resize(new, (len(new), table.shape[1]))
    result = features.transform(new)
    assert result.shape == (len(new), features.width)
    assert result.dtype == torch.float32
    assert torch.isfinite(result).all()
    assert torch.equal(FeatureMap.from_tensors(scaling, features.tensors()).transform(new), result)


@given(tables)
def test_order_is_kept(table):
    result = FeatureMap.fit(table, "quantile").transform(table).numpy()
    for column in range(table.shape[1]):
        known = ~np.isnan(table[:, column])
        order = np.argsort(table[known, column], kind="stable")
        assert (np.diff(result[known, column][order]) >= 0).all()


def test_missing_values_are_told_beside():
    table = np.array([[1.0, np.nan, 5.0], [2.0, 1.0, 5.0], [3.0, 2.0, 5.0]])
    result = FeatureMap.fit(table, "quantile").transform(table)
    assert result[:, 3].tolist() == [1.0, 0.0, 0.0]
    assert result[0, 1] == 0
    assert result[:, 2].tolist() == [0, 0, 0], "a constant column says nothing"
