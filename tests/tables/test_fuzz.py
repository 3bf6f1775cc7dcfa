"""Whatever bytes a file holds: a table that can be encoded, or a TableError. Nothing else."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskloss.tables import TableEncoder, TableError, binary_target, graded_target, read_table

NAMES = st.sampled_from(["x.csv", "x.tsv", "x.txt", "x.svm", "x.parquet", "x.csv.gz", "x"])
CELLS = st.one_of(
    st.sampled_from(
        ["", "0", "1", "NA", "1,234", "1,5", "12%", "$3", "inf", "1e400", "-0", "a", "2020-01-01", "2020-99-01", '"', "\0"]
    ),
    st.floats().map(str),
    st.integers().map(str),
    st.text(max_size=6),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


def use(path: Path) -> None:
    try:
        table = read_table(path)
        assert table.rows > 0
        for name in table.columns:
            for read_target in (binary_target, graded_target):
                try:
                    read_target(table, name)
                except TableError as error:
                    assert str(error)  # noqa: PT017 (any table may raise, but not without a message)
        encoder = TableEncoder.fit(table)
        features = encoder.encode(table)
        assert features.shape == (table.rows, len(encoder.feature_names))
        assert np.isfinite(features).all()
        assert TableEncoder.from_dict(encoder.to_dict()) == encoder
    except TableError as error:
        assert len(str(error)) >= 10  # noqa: PT017 (any table may raise, but not without a message)


@given(content=st.binary(max_size=200), name=NAMES, start=st.sampled_from([b"", b"PAR1", b"\x1f\x8b\x08", b"\xff\xfe", b"a,b\n"]))
def test_random_bytes(folder, content, name, start):
    path = folder / name
    path.write_bytes(start + content)
    use(path)


@given(text=st.text(alphabet=st.sampled_from('ab01,;\t|"\n\r .%-é:#q'), max_size=120), name=NAMES)
def test_random_text(folder, text, name):
    path = folder / name
    path.write_bytes(text.encode())
    use(path)


@given(rows=st.lists(st.lists(CELLS, min_size=3, max_size=3), min_size=1, max_size=30), ragged=st.booleans())
def test_random_tables(folder, rows, ragged):
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["u", "v", "w"])
    writer.writerows([*rows[:-1], rows[-1][:2]] if ragged else rows)
    path = folder / "x.csv"
    path.write_bytes(text.getvalue().encode("utf-8", errors="replace"))
    use(path)


@given(
    lines=st.lists(
        st.tuples(
            st.sampled_from(["0", "1", "2", "x", "-1"]),
            st.sampled_from(["", " qid:1", " qid:x"]),
            st.text("12:. #a", max_size=12),
        ),
        max_size=10,
    )
)
def test_random_svmlight(folder, lines):
    path = folder / "x.svm"
    path.write_text("\n".join(f"{label}{query} {rest}" for label, query, rest in lines))
    use(path)
