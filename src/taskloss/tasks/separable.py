"""Ranking metrics of the user, from a function of the rank among the positives and the negatives above."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

import numpy as np

from taskloss import _checks
from taskloss.kernels import user_functions
from taskloss.kernels.ranking import function_table, levels
from taskloss.layout import Rankings
from taskloss.metrics import separable, term_checks
from taskloss.tasks.large_tables import say_slow
from taskloss.tasks.ranking import RankingTask


@dataclass(frozen=True)
class SeparableMetric(RankingTask):
    r"""A ranking metric of your own, a sum over the positives of ``m(i, c)``.

    .. math:: M = \frac{1}{Z} \sum_{i=1}^{P} m(i, c_i), \qquad Z = \sum_{i=1}^{R} m(i, 0)

    with i the rank of a positive among the positives (1 is the top), ``c_i`` the negatives above it (so ``i + c_i`` is its
    rank), R the relevant items (P unless ``num_relevant`` is given), and Z the value of a perfect list. The loss is ``1 - M``.
    Inference is exact for every loss and both updates. The values of m must not grow with c, and M must lie in [0, 1]; both
    are checked.

    Args:
        m: a function of two int64 arrays of one shape, i and c, that returns a number for each. If it has a parameter
            ``num_relevant`` or ``num_negatives``, it is also given R or N, as arrays of that shape. It must depend on nothing
            else. A function of a module can be pickled, a lambda not. A function of ``numba.njit`` is called with numbers
            instead, which makes large tables two to four times faster.
        normalize: divide by Z. Without it, M is the plain sum.
        ties: the value of tied scores. ``"mean"``: the mean over the orders of a tied group, as for NDCG. ``"together"``: each
            positive of a group counts as its last one, with all negatives of the group above, as for average precision.
            ``"worst"``: the negatives of a group stand above its positives. The gradient does not depend on it.
        convex: whether m is convex in c, that is, ``m(i, c) - m(i, c + 1)`` falls with c. The positive update and the hinge then
            take O(P log N) values of m. Otherwise, and for the negative update, a table takes up to P N values and one bit for
            each. A wrong ``True`` is an error (a large ranking is checked at some of its ranks).
        on_one_class: as for :class:`~taskloss.AveragePrecision`.

    Average precision is ``m = i / (i + c)`` with ties together; NDCG is ``m = 1 / log2(1 + i + c)``. A gain that falls with the
    square root of the rank:

    >>> import torch, taskloss as tl
    >>> def root_discount(i, c):
    ...     return 1 / np.sqrt(i + c)
    >>> task = SeparableMetric(root_discount, convex=True)
    >>> task
    SeparableMetric(root_discount, normalize=True, ties='mean', convex=True, on_one_class='skip')
    >>> round(tl.DirectLoss(task)(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([0, 1, 1])).item(), 4)
    0.2476
    """

    m: separable.TermFunction
    _: KW_ONLY
    normalize: bool = True
    ties: str = separable.TIES[0]
    convex: bool = False
    on_one_class: str = "skip"

    def __post_init__(self) -> None:
        super().__post_init__()
        term_checks.check_term_function(self.m, separable.SIZES)
        _checks.check_choice("ties", self.ties, separable.TIES)
        _checks.check_flag("normalize", self.normalize)
        _checks.check_flag("convex", self.convex)

    def __repr__(self) -> str:
        name = getattr(self.m, "__qualname__", None) or repr(self.m)
        settings = ", ".join(f"{field}={getattr(self, field)!r}" for field in ("normalize", "ties", "convex", "on_one_class"))
        return f"{type(self).__name__}({name}, {settings})"

    def of_prediction(self, rankings: Rankings) -> np.ndarray:
        return separable.of_prediction(self.m, rankings, self.normalize, self.ties)

    def of_counts(self, rankings: Rankings, counts: np.ndarray) -> np.ndarray:
        return separable.of_counts(self.m, rankings, counts, self.normalize)

    def augment(self, rankings: Rankings, metric_weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        terms = separable.BatchTerms(self.m, rankings)
        loss_weight = metric_weight * separable.scale(terms, rankings, self.normalize)
        if len(loss_weight):
            largest = int((rankings.positives * rankings.negatives).argmax())
            sizes = (int(count[largest]) for count in (rankings.positives, rankings.negatives, rankings.relevant))
            separable.check_shape(self.m, self.convex, *sizes)
        if self.convex and (loss_weight >= 0).all():
            return levels.augment_by_levels(rankings.lists, terms.ranking, terms, loss_weight)
        if not user_functions.is_compiled(self.m):
            say_slow(self, int((rankings.positives * rankings.negatives).sum()), "two numbers, and the sizes that it asks for")
        return function_table.augment_by_table(
            rankings.lists, terms.ranking, rankings.above, rankings.at_or_above, terms, loss_weight
        )
