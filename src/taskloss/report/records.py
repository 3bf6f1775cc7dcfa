"""What a comparison leaves behind: plain records, which the page, the table and ``results.json`` are all made from."""

from __future__ import annotations

from dataclasses import dataclass

FORMAT = 2
"""Of ``results.json``; files of another one are refused."""


@dataclass(frozen=True)
class Bin:
    """Test samples of similar predicted probability."""

    predicted: float
    """Mean probability of the positive class."""
    observed: float
    """Share of positives."""
    samples: int


@dataclass(frozen=True)
class Curves:
    """How one network ranks its test samples."""

    precision: tuple[float, ...]
    """At the recalls 1/R, 2/R, ..., 1, with R the number of positives, at most :data:`~taskloss.report.curves.MOST_POINTS`."""
    recall: tuple[float, ...]
    """At the false positive rates :data:`~taskloss.report.curves.FALSE_POSITIVE_RATES`."""
    calibration: tuple[Bin, ...]
    """Of the predicted probabilities, in bins of equally many expected positives; empty if the method predicts none."""


@dataclass(frozen=True)
class Thresholds:
    """What each of some thresholds would flag among the test samples of a split, from the highest threshold down."""

    values: tuple[float, ...]
    """A sample is flagged if its score is at or above the threshold."""
    true_positives: tuple[int, ...]
    false_positives: tuple[int, ...]
    positives: int
    negatives: int
    chosen: float | None
    """The threshold that the method chose on held-out samples, if it chose one: what is above it is flagged."""
    edges: tuple[float, ...]
    """Edges of the histogram's bins, rising."""
    positive_scores: tuple[int, ...]
    """Positives in each bin."""
    negative_scores: tuple[int, ...]


@dataclass(frozen=True)
class Run:
    """One model, trained by one method on the split of one seed, and how well it does on the test samples."""

    method: str
    seed: int
    value: float
    """The metric on the test samples, in [0, 1]."""
    others: dict[str, float]
    """Other metrics on the test samples, by name."""
    steps: tuple[int, ...]
    """Some of the steps of the training, counted from 1."""
    learning: tuple[float, ...]
    """The metric on the validation samples after these steps."""
    best_step: int
    """The step whose weights were kept."""
    seconds: float
    curves: Curves | None = None
    """None where there is no single list of samples: queries and their documents."""
    thresholds: Thresholds | None = None
    """Kept for the first split only."""


@dataclass(frozen=True)
class Feature:
    """A column of the data."""

    name: str
    kind: str
    """``"number"`` or ``"category"``."""
    missing: int
    """Rows without a value."""
    values: str
    """What the values are, in a few words."""


@dataclass(frozen=True)
class DataCard:
    """What the samples are."""

    name: str
    """Of the file or the data set."""
    source: str
    """Where they come from, licence included, as far as known."""
    samples: int
    positives: int
    target: str
    """The name of the target column."""
    positive: str
    """What a positive sample is: its label."""
    features: tuple[Feature, ...]
    notices: tuple[str, ...]
    """What was left out or changed on the way from the file to the features."""
    groups: int = 0
    """Queries, if the samples are documents of queries."""


@dataclass(frozen=True)
class Comparison:
    """Runs of several methods over the same splits, and what one needs to know to judge and to repeat them."""

    metric: str
    """The name of the metric that was trained for and tested, as a reader knows it."""
    data: DataCard
    test_fraction: float
    """Share of the samples that no method sees before the end."""
    methods: dict[str, str]
    """What each method is, by name, in the order of the table."""
    baseline: str
    contender: str
    runs: tuple[Run, ...]
    settings: dict[str, str]
    """What was done, in words: name of the setting, its value."""
    command: str
    """What to type to get the same again."""
    versions: dict[str, str]

    def runs_of(self, method: str) -> tuple[Run, ...]:
        """The runs of one method, by seed."""
        return tuple(sorted((run for run in self.runs if run.method == method), key=lambda run: run.seed))

    def seeds(self) -> list[int]:
        """The seeds, which must be the same two or more for every method."""
        seeds = [run.seed for run in self.runs_of(self.baseline)]
        for method in self.methods:
            if len(seeds) < 2 or seeds != [run.seed for run in self.runs_of(method)]:
                raise ValueError(f"a comparison needs two or more splits, the same for all methods; {method} differs")
        return seeds
