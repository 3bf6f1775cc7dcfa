"""The areas of several classes as linear programs: loss, value and gradient by sorting or by the program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Unpack

import numpy as np
import torch
from torch import Tensor

from taskloss import _checks, _output_checks
from taskloss.class_layout import ClassBatch, read_classes
from taskloss.kernels.sort import TwoLists, split_by_label
from taskloss.lp.formulations.multi_class_auc import KINDS, class_auc_program
from taskloss.lp.losses.auc import FORMS, PAIR_MARGIN, PairMeans, is_ramp, pair_loss_by_program
from taskloss.lp.losses.base import SOLVERS, ProgramCallOptions, ProgramLoss, ProgramLossOptions, ProgramObjective, program_loss
from taskloss.lp.losses.multi_class_auc_kernel import class_pairs, sum_class_pairs
from taskloss.tasks.multiclass import CostMatrix
from taskloss.tasks.task import Call, Task

_SAFE_DIFFERENCE = 1e37
"""Differences of float32 scores up to this size fit into float32."""


class MultiClassAUCLoss(ProgramLoss):
    r"""Linear programs of the areas of several classes (Meng et al. 2021, eq. 4, 8 and 9), solved by sorting.

    The loss is the mean over pairs of classes, or over classes, of the :class:`AUCLoss` of the ranking that ``kind`` defines:

    - ``"binary_costs"``: AUC-mu; the pair a < b ranks the samples of a before those of b by ``f_a - f_b``.
    - ``"costs"``: AUC-mu with ``cost[target, predicted]``; the pair is ranked by ``sum_t f_t (cost[t, b] - cost[t, a])``.
    - ``"one_vs_all"``: each class is ranked by its own score against all the others.

    The metrics are :func:`taskloss.metrics.auc_mu_score` and :func:`taskloss.metrics.one_vs_rest_auc_score`. The paper adds
    up the pairs of samples without weights, so that large classes count most, and doubles the gap of AUC-mu.

    Pairs without samples on both sides are left out; a batch of one class gives zero loss and gradient. Float32 scores are
    subtracted in float32.

    Args:
        kind: the rankings, see above.
        cost: for ``kind="costs"``: square, finite, not negative, zero on the diagonal.
        margin: as for :class:`AUCLoss`.
        form: as for :class:`AUCLoss`.
        solver: as for :class:`AUCLoss`.
        settings: ``ignore_index``.

    Call as cross-entropy: ``(n, K)`` with ``(n,)``, or ``(B, K, H, W)`` with ``(B, H, W)``; one value for the whole batch.

    >>> import torch
    >>> scores = torch.tensor([[2.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.5, 0.0, 0.0]])
    >>> round(MultiClassAUCLoss()(scores, torch.tensor([0, 1, 2])).item(), 4)
    0.0
    """

    def __init__(
        self,
        kind: str = KINDS[0],
        cost: Any = None,
        *,
        margin: float = PAIR_MARGIN,
        form: str = FORMS[0],
        solver: str = SOLVERS[0],
        **settings: Unpack[ProgramLossOptions],
    ) -> None:
        super().__init__(_multi_class_auc(margin, form, kind, cost), solver, None, settings)


def multi_class_auc_loss(
    scores: Tensor,
    target: Tensor,
    *,
    kind: str = KINDS[0],
    cost: Any = None,
    margin: float = PAIR_MARGIN,
    form: str = FORMS[0],
    solver: str = SOLVERS[0],
    **options: Unpack[ProgramCallOptions],
) -> Tensor:
    """Compute the loss of :class:`MultiClassAUCLoss`."""
    return program_loss(_multi_class_auc(margin, form, kind, cost), scores, target, solver, **options)


@dataclass(frozen=True)
class MultiClassAUC(Task):
    """Hinge or ramp of the pairs of samples of AUC-mu, or of each class against the rest; one item for the whole batch."""

    target_kind: ClassVar[str] = "class"
    options: ClassVar[frozenset[str]] = frozenset({"ignore_index"})
    margin: float
    ramp: bool
    kind: str
    cost: CostMatrix | None

    def read(self, scores: np.ndarray, target: np.ndarray, call: Call) -> MultiClassAUCObjective:
        self.refuse_unknown(call)
        batch = read_classes(scores, target, call.ignore_index)
        if self.cost is not None:
            _output_checks.check_cost_fits(self.cost.values, batch.classes)
        return MultiClassAUCObjective(self, batch)

    def values_shape(
        self, scores: tuple[int, ...], target: tuple[int, ...], dims: tuple[int, ...] | None, groups: int | None
    ) -> tuple[int, ...]:
        return ()


def _multi_class_auc(margin: float, form: str, kind: str, cost: Any) -> MultiClassAUC:
    _checks.check_choice("kind", kind, KINDS)
    if (cost is not None) != (kind == "costs"):
        raise ValueError(f"kind={kind!r} and cost={'given' if cost is not None else 'None'}; cost= belongs to kind='costs'")
    matrix = cost if cost is None or isinstance(cost, CostMatrix) else CostMatrix(cost)
    return MultiClassAUC(_checks.check_positive("margin", margin), is_ramp(form), kind, matrix)


class MultiClassAUCObjective(ProgramObjective):
    """The mean over the rankings, of pairs of classes or of classes, that have samples on both sides."""

    def __init__(self, task: MultiClassAUC, batch: ClassBatch) -> None:
        self._task, self._batch = task, batch
        kept = batch.kept
        self._kept = None if kept.all() else kept
        self._target = batch.target.reshape(-1) if self._kept is None else batch.target.reshape(-1)[kept]
        present = np.count_nonzero(np.bincount(self._target, minlength=batch.classes))
        self.values_shape, self.defined, self.weights = (), np.array([present > 1]), np.ones(1)
        self._means: PairMeans | None = None

    def _kept_rows(self) -> np.ndarray:
        """Return the scores ``(n, K)`` of the samples that are not ignored."""
        rows = np.ascontiguousarray(np.moveaxis(self._batch.scores, 1, 2)).reshape(-1, self._batch.classes)
        rows = rows if self._kept is None else rows[self._kept]
        if rows.dtype == np.float32 and (self._task.cost is not None or float(np.abs(rows).max(initial=0.0)) > _SAFE_DIFFERENCE):
            return rows.astype(np.float64)
        return rows

    def _rankings(self, rows: np.ndarray) -> TwoLists:
        """Return the rankings of all classes, or of all pairs of classes, as sorted lists of entries."""
        classes = self._batch.classes
        if self._task.kind == "one_vs_all":
            labels = np.arange(classes) == self._target[:, None]
            owner = np.tile(np.arange(classes), len(rows))
            return split_by_label(rows.reshape(-1), labels.reshape(-1).view(np.uint8), owner, classes)
        merits = rows if self._task.cost is None else _merits(rows, self._task.cost.values)
        largest = merits.dtype.type(np.finfo(merits.dtype).max / 4)
        scores, labels, pair = class_pairs(merits, self._target, classes, largest)
        return split_by_label(scores, labels, pair, classes * (classes - 1) // 2)

    def _pair_means(self) -> PairMeans:
        if self._means is None:
            rows = self._kept_rows()
            lists = self._rankings(rows)
            self._entries, self._work_dtype = len(lists.positives) + len(lists.negatives), rows.dtype
            self._means = PairMeans(lists, self._task.margin, self._task.ramp)
            pairs = lists.positive_counts() * lists.negative_counts()
            self._share = (pairs > 0) / max(np.count_nonzero(pairs), 1)
        return self._means

    def values(self) -> np.ndarray:
        means = self._pair_means()
        return np.array([np.where(self._share > 0, means.values * self._share, 0.0).sum()])

    def gradient(self, factor: np.ndarray) -> np.ndarray:
        means, batch = self._pair_means(), self._batch
        entries = means.gradient(factor[0] * self._share, self._entries, self._work_dtype)
        if self._task.kind == "one_vs_all":
            rows = entries.reshape(-1, batch.classes)
        else:
            rows = sum_class_pairs(entries, self._target, batch.classes)
            if self._task.cost is not None:
                rows = -rows @ self._task.cost.values.T
        outer, classes, inner = batch.scores.shape
        if self._kept is not None:
            all_rows = np.zeros((outer * inner, classes), rows.dtype)
            all_rows[self._kept] = rows
            rows = all_rows
        moved = np.ascontiguousarray(np.moveaxis(rows.reshape(outer, inner, classes), 2, 1))
        return moved.astype(batch.scores.dtype, copy=False).reshape(batch.shape)

    def owner(self) -> np.ndarray:
        return np.zeros(self._batch.scores.size, np.int64)

    def solve_programs(self, scores: Tensor) -> Tensor:
        rows = scores.reshape(self._batch.scores.shape).movedim(1, 2).reshape(-1, self._batch.classes)
        rows = rows if self._kept is None else rows[torch.from_numpy(self._kept).to(rows.device)]
        if not self.defined[0]:
            return (rows * 0.0).sum()[None]
        task, target = self._task, torch.from_numpy(self._target).to(rows.device)
        cost = None if task.cost is None else task.cost.values
        program = class_auc_program(rows, target, margin=task.margin, kind=task.kind, cost=cost)
        return pair_loss_by_program(program, task.margin, task.ramp)[None]


def _merits(rows: np.ndarray, cost: np.ndarray) -> np.ndarray:
    """Return minus the cost of each decision, ``(n, K)``; scores so large that it would overflow are clipped."""
    largest = np.finfo(rows.dtype).max / (8.0 * len(cost) * max(1.0, float(cost.max())))
    return -np.clip(rows, -largest, largest) @ cost
