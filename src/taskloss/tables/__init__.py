"""From a data file to numbers: readers of CSV, TSV, Parquet and svmlight files, a typed table, and a fitted encoder.

Whatever a file holds, reading it gives a :class:`Table`, or a :class:`TableError` that names the row and the column.
"""

from taskloss.tables.encoder import TableEncoder
from taskloss.tables.errors import TableError
from taskloss.tables.read import read_table
from taskloss.tables.table import Table
from taskloss.tables.target import BinaryTarget, binary_target, graded_target

__all__ = ["BinaryTarget", "Table", "TableEncoder", "TableError", "binary_target", "graded_target", "read_table"]
