"""The records of a comparison: plain dataclasses from which the page, the table and ``results.json`` are made."""

from __future__ import annotations

from dataclasses import dataclass, field

FORMAT = 3
"""Version of the format of ``results.json``; files of another version are refused."""
CLASSES_LISTED = 8
"""Largest number of classes that are listed with their sizes in a sentence."""


@dataclass(frozen=True)
class Bin:
    """A bin of test samples with similar predicted probability."""

    predicted: float
    """Mean probability of the positive class, or of the predicted one of several classes."""
    observed: float
    """Share of positives, or of right predictions."""
    samples: int


@dataclass(frozen=True)
class Curves:
    """The curves of one run on its test samples."""

    precision: tuple[float, ...]
    """Precision at the recalls 1/R, 2/R, ..., 1; R is the number of positives or ``MAX_POINTS``, whichever is smaller."""
    recall: tuple[float, ...]
    """Recall at the false positive rates :data:`~taskloss.report.curves.FALSE_POSITIVE_RATES`."""
    calibration: tuple[Bin, ...]
    """Bins with the same expected number of positives; empty if the method predicts no probabilities."""


@dataclass(frozen=True)
class Thresholds:
    """Confusion counts of the test samples of a split at several thresholds, and a histogram of the scores.

    The first three tuples have one entry per threshold, from the highest threshold down.
    """

    values: tuple[float, ...]
    """The thresholds; a sample is flagged if its score is at or above the threshold."""
    true_positives: tuple[int, ...]
    false_positives: tuple[int, ...]
    positives: int
    negatives: int
    chosen: float | None
    """The threshold that the method chose on held-out samples, above which samples are flagged; None if it chose none."""
    edges: tuple[float, ...]
    """Edges of the bins of the histogram, ascending."""
    positive_scores: tuple[int, ...]
    """Number of positives in each bin."""
    negative_scores: tuple[int, ...]
    """Number of negatives in each bin."""


@dataclass(frozen=True)
class ClassResults:
    """The decisions of one run among several classes, on its test samples."""

    confusion: tuple[tuple[int, ...], ...]
    """Number of samples by true class (the rows) and predicted class, in the order of :attr:`DataCard.classes`."""
    calibration: tuple[Bin, ...]
    """Bins of the probability of the predicted class, with the same expected number of right predictions; empty if the method
    predicts no probabilities."""


@dataclass(frozen=True)
class FeatureEffect:
    """The effect of a column on the metric of a run."""

    column: str
    fall: float
    """By how much the metric falls if the values of the column are shuffled among the test samples; the mean over the repeats."""
    repeats: int
    """Number of shuffles."""


@dataclass(frozen=True)
class Run:
    """A model trained by one method on the split of one seed, and its results on the test samples."""

    method: str
    seed: int
    value: float
    """The metric on the test samples, in [0, 1]."""
    others: dict[str, float]
    """Other metrics on the test samples, by name."""
    steps: tuple[int, ...]
    """The training steps of the learning curve, counted from 1; a long training keeps only some."""
    learning: tuple[float, ...]
    """The metric on the validation samples after these steps."""
    best_step: int
    """The step whose weights were kept."""
    seconds: float
    curves: Curves | None = None
    """None for queries, where the samples are not one list, and for several classes."""
    thresholds: Thresholds | None = None
    """Only for the first split; None for queries and several classes."""
    effects: tuple[FeatureEffect, ...] = ()
    """One per column of the table; empty if they were not measured."""
    classes: ClassResults | None = None
    """None unless there are several classes."""


@dataclass(frozen=True)
class Feature:
    """A column of the data."""

    name: str
    kind: str
    """``"number"`` or ``"category"``."""
    missing: int
    """Number of rows without a value."""
    values: str
    """Description of the values in a few words."""


@dataclass(frozen=True)
class DataCard:
    """A description of the samples."""

    name: str
    """Name of the file or the data set."""
    source: str
    """Where the samples come from, with the licence as far as it is known."""
    samples: int
    positives: int
    """Number of positive or relevant samples; 0 where there are several classes."""
    target: str
    """The name of the target column."""
    positive: str
    """The label of positive samples; empty where there are several classes."""
    features: tuple[Feature, ...]
    notices: tuple[str, ...]
    """Messages about what was left out or changed between the file and the features."""
    groups: int = 0
    """Number of queries, if the samples are documents of queries."""
    classes: dict[str, int] = field(default_factory=dict)
    """The number of samples of each of several classes, by label; empty for two classes and queries."""

    def list_classes(self) -> str:
        """Return the classes in words, with the sizes of the first few."""
        shown = ", ".join(f"{label} ({samples:,})" for label, samples in list(self.classes.items())[:CLASSES_LISTED])
        return f"one of {len(self.classes)} classes: {shown}" + (", ..." if len(self.classes) > CLASSES_LISTED else "")


@dataclass(frozen=True)
class Comparison:
    """Runs of several methods on the same splits, and what is needed to judge and to repeat them."""

    metric: str
    """The label of the metric that was trained for and tested."""
    data: DataCard
    test_fraction: float
    """Share of the samples that only the test uses."""
    methods: dict[str, str]
    """The descriptions of the methods by label, in the order of the table."""
    baseline: str
    """The label of the method that all others are compared with."""
    contender: str
    """The label of the direct loss alone, whose gain over the baseline is part of the verdict."""
    runs: tuple[Run, ...]
    settings: dict[str, str]
    """The settings in words, by name."""
    command: str
    """The command line that gives the same results."""
    versions: dict[str, str]
    default: str = ""
    """The label of the method that is recommended unless another is better by more than chance explains; where it was not
    compared, the baseline takes its place."""
    trees: str = ""
    """The label of gradient-boosted trees, whether they were compared or not; empty if they are of no interest."""
    train_commands: dict[str, str] = field(default_factory=dict)
    """The command that trains a model on all the data, by the label of the method. Only these methods are recommended."""

    def runs_of(self, method: str) -> tuple[Run, ...]:
        """Return the runs of one method, sorted by seed."""
        return tuple(sorted((run for run in self.runs if run.method == method), key=lambda run: run.seed))

    def check_classes(self) -> None:
        """Raise unless every run has a confusion matrix of the classes, or there are no several classes and no matrices."""
        size = len(self.data.classes)
        for run in self.runs:
            sides = [] if run.classes is None else [len(run.classes.confusion), *map(len, run.classes.confusion)]
            if sides != ([size] * (size + 1) if size else []):
                raise ValueError(
                    f"{run.method}, seed {run.seed}: the confusion matrix does not have the {size} classes of the data"
                )

    def seeds(self) -> list[int]:
        """Return the seeds; raise unless every method has the same two or more."""
        seeds = [run.seed for run in self.runs_of(self.baseline)]
        for method in self.methods:
            if len(seeds) < 2 or seeds != [run.seed for run in self.runs_of(method)]:
                raise ValueError(f"a comparison needs two or more splits, the same for all methods; {method} differs")
        return seeds
