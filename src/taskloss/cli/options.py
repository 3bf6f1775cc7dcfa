"""Arguments and options that several commands share: each has one declaration and one help text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from taskloss.datasets import BUNDLED

MAX_SEED = 2**32 - 1
"""Largest seed that scikit-learn and LightGBM accept."""

TRAINING, READING = "Training", "Reading the file"
"""Headings in the help text; options without one are listed under "Options"."""

DATA_HELP = "CSV, TSV, Parquet or svmlight file, plain or gzipped; or the name of a bundled data set: " + ", ".join(BUNDLED) + "."
Data = Annotated[Path, typer.Argument(help=DATA_HELP, show_default=False)]
Target = Annotated[str | None, typer.Option(help="Column to predict.", show_default="in svmlight: target")]
Metric = Annotated[
    str | None,
    typer.Option(
        help="Metric to train for and to test. Settings follow a colon: recall_at_fpr:fpr=0.01. "
        "The command taskloss tasks lists the metrics.",
        show_default="average_precision; with queries graded_ndcg",
    ),
]
Positive = Annotated[
    str | None,
    typer.Option(
        help="Label of the positive class; all others are negative.",
        show_default="1 or true; else the rarer of two labels, or if both are above 40% the last in sorted order; of more "
        "than two none",
    ),
]
Group = Annotated[
    str | None, typer.Option(help="Column of query ids: the rows of each query are ranked.", show_default="in svmlight: qid")
]
Jobs = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=64,
        help="Number of processes.",
        show_default="one per core, at most 4",
        rich_help_panel=TRAINING,
    ),
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue an interrupted run in the same output folder.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite an output that exists already.")]
Json = Annotated[bool, typer.Option("--json", help="Print the results as JSON; messages go to the error stream.")]

Seed = Annotated[
    int,
    typer.Option(min=0, max=MAX_SEED, help="Seed of the splits, initial weights and batches.", rich_help_panel=TRAINING),
]
Iterations = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Largest number of training steps per network.",
        show_default="that of the estimator",
        rich_help_panel=TRAINING,
    ),
]

Drop = Annotated[list[str] | None, typer.Option(help="Column to leave out. May be repeated.", rich_help_panel=READING)]
Id = Annotated[
    list[str] | None,
    typer.Option(
        "--id",
        help="Column that identifies the rows: nothing is learned from it, predict copies it. May be repeated.",
        rich_help_panel=READING,
    ),
]
Keep = Annotated[
    list[str] | None,
    typer.Option(
        help="Column of numbers to learn from although it looks like an identifier. May be repeated.", rich_help_panel=READING
    ),
]
Dates = Annotated[
    str | None,
    typer.Option(
        help="Meaning of dates like 01/02/2023: day-first or month-first.",
        show_default="what the column itself shows",
        rich_help_panel=READING,
    ),
]
Categorical = Annotated[
    list[str] | None,
    typer.Option(help="Column of categories that look like numbers. May be repeated.", rich_help_panel=READING),
]
Missing = Annotated[
    list[str] | None,
    typer.Option(
        help="Text that marks a missing value, besides NA, null, ? and the like. May be repeated.", rich_help_panel=READING
    ),
]
Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        help="File format: csv, tsv, parquet or svmlight.",
        show_default="by name and content",
        rich_help_panel=READING,
    ),
]
Encoding = Annotated[str | None, typer.Option(help="Encoding of a text file.", show_default="utf-8", rich_help_panel=READING)]
MaxRows = Annotated[
    int | None,
    typer.Option(
        min=100,
        help="Use a random sample of this many rows if the file has more.",
        show_default="compare: 100,000, train: no limit",
        rich_help_panel=READING,
    ),
]
