"""Reading data files (CSV, TSV, Parquet, svmlight) into a :class:`Table`, and encoding its columns as numbers.

A file that cannot be used raises a :class:`TableError` that names the row and the column. This package may import pyarrow and
``_checks``, and nothing else of taskloss.
"""

from taskloss.tables.encoder import TableEncoder
from taskloss.tables.errors import TableError
from taskloss.tables.read import read_table
from taskloss.tables.table import Table
from taskloss.tables.target import BinaryTarget, ClassTarget, binary_target, class_indices, class_target, graded_target

__all__ = [
    "BinaryTarget",
    "ClassTarget",
    "Table",
    "TableEncoder",
    "TableError",
    "binary_target",
    "class_indices",
    "class_target",
    "graded_target",
    "read_table",
]
