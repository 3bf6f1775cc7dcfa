"""Arguments and options that several commands share: one name, one help text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

MOST_SEED = 2**32 - 1
"""What scikit-learn and LightGBM take."""

Data = Annotated[Path, typer.Argument(help="CSV, TSV, Parquet or svmlight file, plain or gzipped.", show_default=False)]
Target = Annotated[str | None, typer.Option(help="Column to predict. (svmlight: target)", show_default=False)]
Positive = Annotated[
    str | None, typer.Option(help="Label of the positive class, against all others. (default: the rarer one)", show_default=False)
]
Group = Annotated[
    str | None, typer.Option(help="Column of query ids: rank the rows of each query. (svmlight: qid)", show_default=False)
]
Metric = Annotated[
    str | None,
    typer.Option(
        help="Metric to train for and to test, with settings after a colon: recall_at_fpr:fpr=0.01. See taskloss tasks. "
        "(default: average_precision, with queries graded_ndcg)",
        show_default=False,
    ),
]
Ignore = Annotated[list[str] | None, typer.Option(help="Column to leave out. May be given several times.", show_default=False)]
Categorical = Annotated[
    list[str] | None,
    typer.Option(help="Column of categories that look like numbers. May be given several times.", show_default=False),
]
Missing = Annotated[
    list[str] | None,
    typer.Option(
        help="Cell that stands for a missing value, besides NA, null, ? and the like. May be repeated.", show_default=False
    ),
]
Form = Annotated[
    str | None,
    typer.Option("--format", help="csv, tsv, parquet or svmlight. (default: by name and content)", show_default=False),
]
Encoding = Annotated[str | None, typer.Option(help="Of a text file. (default: utf-8)", show_default=False)]
Seed = Annotated[int, typer.Option(min=0, max=MOST_SEED, help="Of splits, initial weights and batches.")]
Json = Annotated[bool, typer.Option("--json", help="Print the results as JSON; messages go to the error stream.")]
