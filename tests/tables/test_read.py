"""Readers: what they understand, and the errors of what they do not."""

from __future__ import annotations

import gzip
from datetime import UTC, date, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from taskloss.tables import TableError, read_table
from taskloss.tables.text import CHUNK_ROWS


@pytest.fixture
def file(tmp_path: Path):
    def write(content: str | bytes, name: str = "data.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def test_csv(file):
    table = read_table(file('a,b c,"d,e"\n1, x ,"two\nlines"\n\n2,y,z\n'))
    assert list(table.columns) == ["a", "b c", "d,e"]
    assert table.rows == 2
    assert table.numbers("a").tolist() == [1, 2]
    assert table.categories("b c").labels == ("x", "y")
    assert table.columns["d,e"].to_pylist() == ["two\nlines", "z"]


@pytest.mark.parametrize(
    ("content", "name"),
    [
        ("a\tb\n1\t2,5\n", "data.tsv"),
        ("a;b\n1;2,5\n", "data.csv"),
        ("a|b\n1|2,5\n", "data.txt"),
        ("a,b\r\n1,2.5\r\n", "data.csv"),
        ("a,b\r1,2.5\r", "data.csv"),
        ("\ufeffa,b\n1,2.5\n", "data.csv"),
        ("a,b\n1,2.5\n".encode("utf-16"), "data.csv"),
        (gzip.compress(b"a,b\n1,2.5\n", mtime=0), "data.csv.gz"),
    ],
)
def test_relatives_of_csv(file, content, name):
    table = read_table(file(content, name))
    assert list(table.columns) == ["a", "b"]
    assert table.numbers("a").tolist() == [1.0]
    assert table.numbers("b", table.kind("b").style).tolist() == [2.5]


def test_more_rows_than_a_chunk(file):
    rows = CHUNK_ROWS + 3
    table = read_table(file("n,parity\n" + "".join(f"{n},{'odd' if n % 2 else 'even'}\n" for n in range(rows))))
    np.testing.assert_array_equal(table.numbers("n"), np.arange(rows))
    np.testing.assert_array_equal(table.categories("parity").codes, np.arange(rows) % 2)
    with pytest.raises(TableError, match=f"row {rows + 1} of"):
        read_table(file("n,parity\n" + "1,odd\n" * rows + "2\n"))


def test_encoding(file):
    path = file("name,city\nAnna,Malmö\n".encode("latin-1"))
    with pytest.raises(TableError, match=r"row 1, column 'city' of data.csv: the byte 0xf6 .* --encoding cp1252"):
        read_table(path)
    assert read_table(path, encoding="latin-1").columns["city"].to_pylist() == ["Malmö"]
    with pytest.raises(TableError, match="the header, column 2"):
        read_table(file("a,ö\n1,2\n".encode("latin-1")))
    for wrong in ("no-such", "hex", "\0"):
        with pytest.raises(TableError, match="no encoding is called"):
            read_table(path, encoding=wrong)


@pytest.mark.parametrize(
    ("content", "name", "words"),
    [
        (b"", "data.csv", "is empty"),
        (b"\n\n", "data.csv", "is empty, or begins with an empty line"),
        (b"a,b\n", "data.csv", "holds no rows"),
        (b"a,b\n1,2\n3\n", "data.csv", "row 2 of data.csv has 1 cells, but the header has 2: the cell of column 'b'"),
        (b"a,b\n1,2,9\n", "data.csv", "row 1 of data.csv has 3 cells.* '9' stands after the last column, 'b'"),
        (b"a,b,a\n1,2,3\n", "data.csv", "columns 1 and 3 of data.csv have the same name, 'a'"),
        (b"1,2\n3,4\n", "data.csv", "holds numbers only"),
        (b'a,b\n1,"open\n2,3\n', "data.csv", "row 1, about line .* quotation mark"),
        (b"PK\x03\x04rest", "data.xlsx", "save the table as CSV"),
        (b"a\0b\n", "data.csv", "not a text file"),
        (b"\x1f\x8bjunk", "data.csv.gz", "cannot read|damaged"),
        (gzip.compress(b"a,b\n1,2\n" * 9999, mtime=0)[:40], "data.csv.gz", "damaged"),
        (b"PAR1junk", "data.csv", "cannot be read as Parquet"),
        (b"junk", "data.parquet", "cannot be read as Parquet"),
        (b"1 1:x\n", "data.svm", "line 1 of data.svm: feature 1 is 'x'"),
        (b"1 1:1\nno 1:1\n", "data.svm", "line 2 of data.svm: the label is 'no'"),
        (b"1 qid:1 1:1\n1 1:1\n", "data.svm", "line 2 of data.svm: some rows have a qid"),
        (b"1 1:1 1:2\n", "data.svm", "feature 1 is given twice"),
        (b"1 one:1\n", "data.svm", "'one:1' is not of the form index:value"),
        (b"# nothing\n", "data.svm", "holds no rows"),
    ],
)
def test_bad_files(file, content, name, words):
    with pytest.raises(TableError, match=words):
        read_table(file(content, name))


def test_no_file(tmp_path: Path):
    with pytest.raises(TableError, match="cannot read .*: No such file"):
        read_table(tmp_path / "none.csv")
    with pytest.raises(TableError, match="cannot read .*: Is a directory"):
        read_table(tmp_path)


def test_svmlight(file):
    table = read_table(file("# a comment\n2 qid:7 1:0.5 10:-1e3 # doc\n0 qid:8 2:1\n", "data.txt"))
    assert list(table.columns) == ["target", "qid", "f1", "f2", "f10"]
    assert table.numbers("target").tolist() == [2, 0]
    assert table.numbers("qid").tolist() == [7, 8]
    assert table.numbers("f10").tolist() == [-1000, 0]


def test_parquet(tmp_path: Path):
    path = tmp_path / "data.bin"
    columns = {
        "whole": pa.array([1, None, 3]),
        "real": pa.array([0.5, float("nan"), 2.0], pa.float32()),
        "flag": pa.array([True, False, None]),
        "word": pa.array([" a ", "b", None]),
        "coded": pa.array(["x", "y", "x"]).dictionary_encode(),
        "day": pa.array([date(1970, 1, 2), None, date(1970, 1, 11)]),
        "moment": pa.array([datetime(1970, 1, 2, 12, tzinfo=UTC)] * 3),
        "list": pa.array([[1], [2], []]),
        "nothing": pa.nulls(3),
    }
    pq.write_table(pa.table(columns), path)
    table = read_table(path)
    np.testing.assert_array_equal(table.numbers("whole"), [1, np.nan, 3])
    np.testing.assert_array_equal(table.numbers("real"), [0.5, np.nan, 2])
    np.testing.assert_array_equal(table.numbers("flag"), [1, 0, np.nan])
    np.testing.assert_array_equal(table.numbers("day"), [1, np.nan, 10])
    np.testing.assert_array_equal(table.numbers("moment"), [1.5, 1.5, 1.5])
    assert table.categories("word").labels == ("a", "b")
    assert table.categories("coded").codes.tolist() == [0, 1, 0]
    assert "list" not in table.columns
    assert "column 'list' is left out" in table.notices[0]
    assert np.isnan(table.numbers("nothing")).all()
