"""Reading class scores: the calling forms of ``torch.nn.functional.cross_entropy``.

==========================  ====================  =====================
scores                      target                values
==========================  ====================  =====================
``(K,)`` one sample         ``()``                ``()``
``(n, K)``                  ``(n,)``              ``(n,)``
``(B, K, H, W)`` pixels     ``(B, H, W)``         ``(B, H, W)``
==========================  ====================  =====================

The classes lie along axis 1, or along the only axis; the target holds class indices, and the values are one per sample.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

import numpy as np

from taskloss import _checks, _output_checks
from taskloss.kernels.choices import IGNORED
from taskloss.kernels.class_reading import read_class_indices
from taskloss.kernels.items import filled


def class_values_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of the values, one per sample, for scores of this shape.

    >>> class_values_shape((8, 21, 64, 64)), class_values_shape((100, 10)), class_values_shape((10,))
    ((8, 64, 64), (100,), ())
    """
    return () if len(shape) == 1 else (shape[0], *shape[2:])


class ClassBatch(NamedTuple):
    """Class scores of one batch; the axes before and after that of the classes are merged."""

    shape: tuple[int, ...]
    """Shape of the given scores."""
    scores: np.ndarray
    """Float32 or float64 ``(outer, K, inner)``."""
    target: np.ndarray
    """Class indices or ``IGNORED``, int64 ``(outer, inner)``."""

    @property
    def values_shape(self) -> tuple[int, ...]:
        return class_values_shape(self.shape)

    @property
    def classes(self) -> int:
        return self.scores.shape[1]

    @property
    def kept(self) -> np.ndarray:
        """Which samples count, bool ``(n,)``."""
        return self.target.reshape(-1) != IGNORED

    def owner(self) -> np.ndarray:
        """Return the sample that each element of the flattened scores belongs to, int64."""
        samples = np.arange(self.target.size).reshape(self.target.shape)
        return np.ascontiguousarray(np.broadcast_to(samples[:, None], self.scores.shape)).reshape(-1)

    def weights(self, weight: np.ndarray | None) -> np.ndarray:
        """Return the weight of each sample in a mean or sum, flat float64."""
        if weight is None:
            return filled(self.target.size, 1.0)
        _output_checks.check_sample_weight(weight, self.values_shape, self.classes)
        return weight.reshape(-1).astype(np.float64)

    def rows(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the scores ``(n, K)``, float64, and the target ``(n,)`` of the samples that count."""
        rows = np.moveaxis(self.scores, 1, 2).reshape(-1, self.classes)
        return rows[self.kept].astype(np.float64), self.target.reshape(-1)[self.kept]


def read_classes(scores: np.ndarray, target: np.ndarray, ignore_index: int | None = None) -> ClassBatch:
    """Check class scores and targets and merge their axes."""
    if scores.ndim == 0:
        raise ValueError("scores has no axis; expected one score per class, shape (n, K)")
    _output_checks.check_class_shapes(scores.shape, target.shape, class_values_shape(scores.shape))
    axis = min(1, scores.ndim - 1)
    classes = scores.shape[axis]
    _output_checks.check_class_dtype(target, classes)
    outer, inner = prod(scores.shape[:axis]), prod(scores.shape[axis + 1 :])
    merged = scores.ravel().reshape(outer, classes, inner)
    indices, valid, finite = read_class_indices(
        target.ravel().reshape(outer, inner), merged, ignore_index is not None, ignore_index or 0
    )
    if not (valid and finite):
        ignored = np.zeros(target.shape, bool) if ignore_index is None else target == ignore_index
        _output_checks.check_class_indices(target, classes, ignored)
        _checks.check_finite(scores, np.expand_dims(~ignored, axis))
    return ClassBatch(scores.shape, merged, indices)
