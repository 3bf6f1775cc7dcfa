"""The bundled data sets: what they are said to be."""

from __future__ import annotations

from importlib import resources

import numpy as np

from taskloss.datasets import BUNDLED, load_page_blocks, load_white_wine


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
    sections = readme.split("\n## ")[1:]
    assert [section.split("`")[3] for section in sections] == list(BUNDLED)
    creators = {"wine": ("Cortez", "KEEL"), "page-blocks": ("Malerba", "ADBench")}
    for section, (name, bundled) in zip(sections, BUNDLED.items(), strict=True):
        assert section.split("`")[1] == bundled.file
        identifier = bundled.source.split("doi:")[1].split(",")[0]
        for words in (*creators[name], identifier, "Creative Commons Attribution 4.0", "Changes", "What to expect"):
            assert words in section
        assert creators[name][0] in bundled.source
        assert "CC BY 4.0" in bundled.source


def test_white_wine():
    features, target = load_white_wine()
    assert (features.shape, features.dtype) == ((900, 11), np.float32)
    assert (target.shape, target.dtype) == ((900,), np.int64)
    assert np.bincount(target).tolist() == [880, 20]
    text = BUNDLED["wine"].path.read_text("ascii")
    header, *lines = text.splitlines()
    for line, row, label in zip(lines, features, target, strict=True):
        assert line == ",".join([*(np.format_float_positional(value, trim="-") for value in row), str(label)])
    columns = dict(zip(header.split(","), features.T, strict=False))
    assert header.endswith(",target")
    assert (columns["free_sulfur_dioxide"] < columns["total_sulfur_dioxide"]).all(), "free is a part of total"
    for name, low, high in (("density", 0.98, 1.01), ("pH", 2.7, 4.0), ("alcohol", 7, 15), ("fixed_acidity", 3, 12)):
        assert low < columns[name].min() < columns[name].max() < high
    assert np.corrcoef(columns["density"], columns["alcohol"])[0, 1] < -0.7, "alcohol is lighter than water"
    # As datasets/README.md says.
    different = {label: len(np.unique(features[target == label], axis=0)) for label in (0, 1)}
    assert different == {0: 880 - 191, 1: 20}
