"""Reading labelings: from scores and labels in any calling form to samples and their confusion counts.

A labeling gives every sample the label 0 or 1. The target has the shape of the scores and holds 0 and 1, or it is a mask of
class indices: it has the shape of the scores without axis 1, the classes, and each class against the rest is one labeling.
Without ``dim=`` the shapes decide which axes form one labeling:

============================  ==============================  =============================  ============
scores                        target                          one labeling                   values
============================  ==============================  =============================  ============
``(n,)``                      ``(n,)``                        the samples                    ``()``
``(n, C)``                    ``(n, C)``                      a column                       ``(C,)``
``(n, C)``                    ``(n,)`` classes                a class                        ``(C,)``
``(B, H, W)``                 ``(B, H, W)``                   an image                       ``(B,)``
``(B, C, H, W)``              ``(B, H, W)`` classes           an image and class             ``(B, C)``
``(B, C, D, H, W)``           ``(B, D, H, W)`` classes        a volume and class             ``(B, C)``
``(B, C, D, H, W)``           the same                        a volume and class             ``(B, C)``
============================  ==============================  =============================  ============

Four axes in both may be images with classes, ``dim=(2, 3)``, or volumes without, ``dim=(1, 2, 3)``: here ``dim=`` must be
given. It also pools over the batch: ``(0, 1, 2)`` for images, ``(0, 2, 3)`` for images with classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from taskloss import _checks, _output_checks
from taskloss.class_layout import class_values_shape
from taskloss.kernels.labeling.reading import count_samples, read_samples
from taskloss.kernels.labeling.samples import Samples, Tallies, one_vs_rest
from taskloss.layout import Layout, binary_labels, lay_out, values_shape


class Labelings(NamedTuple):
    """The labelings of one batch: R of them."""

    samples: Samples
    tallies: Tallies
    nonempty: np.ndarray
    """Labelings with samples that are not ignored, bool ``(R,)``."""

    @property
    def sizes(self) -> np.ndarray:
        """Samples of each labeling that are not ignored, int64 ``(R,)``."""
        return self.tallies.positives + self.tallies.negatives


def holds_classes(scores: tuple[int, ...], target: tuple[int, ...]) -> bool:
    """Return whether a target of this shape is a mask of class indices for scores of this shape.

    >>> holds_classes((16, 21, 64, 64), (16, 64, 64)), holds_classes((30, 1), (30,))
    (True, False)
    """
    return len(scores) >= 2 and scores[1] > 1 and target == class_values_shape(scores)


def labeled_dims(scores: tuple[int, ...], target: tuple[int, ...], dims: Sequence[int] | None) -> Sequence[int]:
    """Return the axes of one labeling: ``dims``, or those that the shapes imply.

    >>> labeled_dims((16, 64, 64), (16, 64, 64), None), labeled_dims((16, 21, 64, 64), (16, 64, 64), None)
    ((1, 2), (2, 3))
    """
    if dims is not None:
        return dims
    if len(scores) <= 2:
        return (0,)
    if len(scores) == 3 and not holds_classes(scores, target):
        return (1, 2)
    if len(scores) == 4 and not holds_classes(scores, target) and scores[1] > 1:
        _output_checks.refuse_ambiguous_volume(scores)
    return tuple(range(2, len(scores)))


def labeling_values_shape(
    scores: tuple[int, ...], target: tuple[int, ...], dims: Sequence[int] | None, groups: int | None
) -> tuple[int, ...]:
    """Return the shape of the values, one per labeling."""
    return values_shape(scores, labeled_dims(scores, target, dims), groups)


def read_labelings(
    scores: np.ndarray,
    target: np.ndarray,
    *,
    dims: Sequence[int] | None = None,
    groups: np.ndarray | None = None,
    ignore_index: int | None = None,
) -> tuple[Layout, Labelings]:
    """Check scores and labels in any calling form and count the samples by label and by the sign of their score."""
    classes = holds_classes(scores.shape, target.shape)
    if not classes:
        _checks.check_shapes(scores, target)
    layout = lay_out(scores.shape, labeled_dims(scores.shape, target.shape, dims), groups)
    if classes:
        labels, ignored = _labels_of_classes(scores.shape, target, ignore_index)
        samples = Samples(scores.ravel(), labels.ravel(), layout.run_owner)
        tallies, nonempty, finite = count_samples(samples, layout.rankings)
        if not finite:
            kept = None if ignored is None else np.broadcast_to(~np.expand_dims(ignored, 1), scores.shape)
            _checks.check_finite(scores, kept)
    else:
        labels, known, tallies, nonempty, finite = read_samples(
            scores.ravel(), target.ravel(), ignore_index is not None, ignore_index or 0, layout.run_owner, layout.rankings
        )
        samples = Samples(scores.ravel(), labels, layout.run_owner)
        if not (known and finite):
            _checks.check_finite(scores, binary_labels(target, ignore_index)[1])
    return layout, Labelings(samples, Tallies(*tallies), nonempty)


def _labels_of_classes(
    shape: tuple[int, ...], target: np.ndarray, ignore_index: int | None
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return one label per score, flat, and which elements of the mask are ignored (None without ``ignore_index``)."""
    _output_checks.check_class_dtype(target, shape[1])
    mask = np.ascontiguousarray(target).reshape(shape[0], -1)
    labels, good = one_vs_rest(mask, shape[1], ignore_index is not None, ignore_index or 0)
    ignored = None if ignore_index is None else target == ignore_index
    if not good:
        _output_checks.check_class_indices(target, shape[1], ignored)
    return labels, ignored
