"""The bundled data sets: what they are said to be."""

from __future__ import annotations

from importlib import resources

import numpy as np

from taskloss.datasets import load_page_blocks


def test_shape_and_types():
    features, target = load_page_blocks()
    assert (features.shape, features.dtype) == ((5393, 10), np.float32)
    assert (target.shape, target.dtype) == ((5393,), np.int64)
    assert np.bincount(target).tolist() == [4883, 510]
    assert np.isfinite(features).all()
    assert len(np.unique(features, axis=0)) == len(features)


def test_columns_are_what_their_names_say():
    features, _ = load_page_blocks()
    height, length, area, eccen, p_black, p_and, mean_tr, blackpix, blackand, wb_trans = features.astype(np.float64).T
    np.testing.assert_array_equal(area, height * length)
    for column, ratio in ((p_black, blackpix / area), (p_and, blackand / area), (eccen, length / height)):
        np.testing.assert_allclose(column, ratio, atol=0.0034)
    np.testing.assert_allclose(mean_tr, blackpix / wb_trans, atol=0.0051)


def test_file_holds_the_shortest_decimals():
    text = resources.files("taskloss.datasets").joinpath("page_blocks.csv").read_text("ascii")
    header, *lines = text.splitlines()
    features, target = load_page_blocks()
    assert header.split(",") == [
        *("height", "length", "area", "eccen", "p_black", "p_and", "mean_tr", "blackpix", "blackand", "wb_trans"),
        "target",
    ]
    for line, row, label in zip(lines, features, target, strict=True):
        assert line == ",".join([*(np.format_float_positional(value, trim="-") for value in row), str(label)])


def test_source_is_attributed():
    readme = resources.files("taskloss.datasets").joinpath("README.md").read_text("utf-8")
    for words in ("Malerba", "10.24432/C5J590", "Creative Commons Attribution 4.0", "ADBench", "Changes"):
        assert words in readme
