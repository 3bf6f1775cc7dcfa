"""Random splits of the samples: stratified by class, or by whole queries."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from sklearn.model_selection import GroupShuffleSplit, train_test_split

from taskloss.cli.data import TableSamples
from taskloss.cli.errors import BAD_DATA, CommandError
from taskloss.report.records import CLASSES_LISTED
from taskloss.tables.errors import shorten

TEST_FRACTION = 0.4
MIN_PER_CLASS = 10
MIN_QUERIES = 10


class Subset(NamedTuple):
    """Some of the samples, as arrays with one row per sample."""

    features: np.ndarray
    """Shape ``(n, columns)``, float32."""
    target: np.ndarray
    """0/1, the index of one of several classes, or grades where there are queries; shape ``(n,)``, int64."""
    groups: np.ndarray | None
    """The query of each sample, shape ``(n,)``, int64; None for classes."""
    columns: tuple[str, ...] = ()
    """The column of the table that each feature was made from."""

    def take(self, rows: np.ndarray) -> Subset:
        """Return the samples at these indices."""
        groups = None if self.groups is None else self.groups[rows]
        return self._replace(features=self.features[rows], target=self.target[rows], groups=groups)


def check_size(samples: TableSamples) -> None:
    """Raise if the data cannot be split into training, validation and test samples with every class in each."""
    card = samples.card
    if card.groups:
        if card.groups < MIN_QUERIES:
            raise CommandError(f"{card.name} has {card.groups} queries; a comparison needs at least {MIN_QUERIES}", BAD_DATA)
        return
    rare = {label: count for label, count in card.classes.items() if count < MIN_PER_CLASS}
    if rare:
        shown = ", ".join(f"{shorten(label)} ({count})" for label, count in list(rare.items())[:CLASSES_LISTED])
        shown += ", ..." if len(rare) > CLASSES_LISTED else ""
        raise CommandError(
            f"{card.name} has too few samples of {len(rare)} of the {len(card.classes)} classes in {card.target!r}: {shown}. "
            f"A comparison needs at least {MIN_PER_CLASS} of each, so that training, validation and test samples have some. "
            "Remove these rows, join classes, raise --max-rows if the file has more of them, or give --positive LABEL to set one "
            "class against all others",
            BAD_DATA,
        )
    if card.classes:
        return
    rarer = min(card.positives, card.samples - card.positives)
    if rarer < MIN_PER_CLASS:
        raise CommandError(
            f"{card.name} has only {rarer} samples of the rarer class; a comparison needs at least {MIN_PER_CLASS}, so that "
            "training, validation and test samples have some",
            BAD_DATA,
        )


def split_rows(target: np.ndarray, groups: np.ndarray | None, fraction: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices of two random parts, the second with ``fraction`` of the samples or of the queries.

    Both parts have the same share of each class; with ``groups``, no query is in both.
    """
    rows = np.arange(len(target))
    if groups is None:
        first, second = train_test_split(rows, test_size=fraction, stratify=target, random_state=seed)
    else:
        first, second = next(GroupShuffleSplit(1, test_size=fraction, random_state=seed).split(rows, groups=groups))
    return first, second


def split_samples(samples: TableSamples, seed: int) -> tuple[Subset, Subset]:
    """Return the training and the test samples of a seed.

    The encoder takes medians and categories from the training samples only.
    """
    training, test = split_rows(samples.target, samples.groups, TEST_FRACTION, seed)
    encoder = samples.encoder.refit(samples.table.take(training))
    columns = tuple(rule.name for rule in encoder.rules for _ in rule.feature_names())
    encoded = Subset(encoder.encode(samples.table), samples.target, samples.groups, columns)
    return encoded.take(training), encoded.take(test)
