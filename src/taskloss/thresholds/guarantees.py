r"""Thresholds that keep a required precision, recall or rate on new data.

A threshold that has the required precision or recall on validation data often misses it on new data: it was chosen because it
looked good there. The bounds here account for that. They hold with the stated confidence over the draw of the validation samples,
which must be independent draws from the same distribution as the new ones, and must not have been used to train or to choose the
model. Nothing is assumed about the scores; ties are allowed.

**Recall.** Let :math:`X_{(1)} \le \dots \le X_{(m)}` be the sorted scores of the m validation positives. Deciding :math:`s \ge
X_{(k)}` has, for a continuous distribution F of the positives' scores, the recall :math:`1 - F(X_{(k)})`, and :math:`F(X_{(k)})`
is distributed as the k-th smallest of m uniform numbers. It is above :math:`1 - r` exactly when fewer than k of the m numbers lie
below :math:`1 - r`:

.. math:: P(\text{recall} < r) = P(\mathrm{Bin}(m, 1 - r) \le k - 1) .

k depends on m alone, so it is not selected by looking at the data: the largest k for which this is at most
:math:`1 - \text{confidence}` gives the exact bound (Wilks 1941). With ties the recall can only be higher.

**False positive rate, alert rate.** The same holds from the other end: deciding :math:`s > X` with X the j-th largest score of n
negatives (of n samples, whatever their label) has a rate above f with probability :math:`P(\mathrm{Bin}(n, f) \le j - 1)`.

**Precision** is not monotone in the threshold, so candidates are tested. A candidate is a rank: its threshold t is the (n+1)-th
largest score, and the samples above t are the alerts. *Given t and their number n', the samples above t are independent draws of
the distribution of samples above t*: the event only says how many samples lie above, at and below t. So the true positives among
them are :math:`\mathrm{Bin}(n', \text{precision}(t))`, and the Clopper-Pearson bound, the c with :math:`P(\mathrm{Bin}(n', c) \ge
tp) = \alpha`, is above the precision with probability at most :math:`\alpha`, although t came from the data. With J candidates
and :math:`\alpha = (1 - \text{confidence}) / J` all J bounds hold at once (union bound), whatever their dependence. So the bound
of the selected candidate holds as well: the one with the most alerts whose bound reaches the requirement. The candidates are
determined by the number of samples and the confidence alone, never by the requirement. So the bounds are the same for every
requirement, the highest of them is one number, and to ask for it, or for anything else, after a look at them is valid. The
numbers of alerts differ by a constant factor so that J stays small, down to those that can show a precision of one half. (Testing
in sequence from the highest threshold down, without dividing the error, is valid for thresholds that were fixed beforehand, but
not for ranks: which hypothesis is the first to be false then depends on the samples above.)
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import bdtr, betaincinv

from taskloss import _checks
from taskloss.layout import to_numpy
from taskloss.thresholds.point import OperatingPoint, found_point, missing_point
from taskloss.thresholds.samples import just_below, ranked, read_samples

CONFIDENCE = 0.95
RANK_FACTOR = 1.5
"""Ratio of the numbers of alerts of neighbouring candidates for a precision; a finer grid leaves each candidate less error."""


def for_precision(
    scores: Any, target: Any, precision: float, *, confidence: float = CONFIDENCE, pos_label: Any = None
) -> OperatingPoint:
    """Return the threshold with the most alerts whose precision on new data is at least ``precision``, with this confidence.

    Args:
        scores: one score per validation sample, shape ``(n,)``; higher means more likely positive.
        target: labels of the same shape: 0 and 1, or any two labels.
        precision: required share of true positives among the alerts.
        confidence: confidence of the guarantee; the module's docstring proves it.
        pos_label: the positive label; all others are negative. By default it is 1 of the labels 0 and 1, -1 and 1, False and
            True; of other labels it is the rarer one if its share is below 40%, else the last one in sorted order, which a
            warning says.

    Returns:
        The operating point; ``found`` is False where no threshold can be guaranteed.

    >>> scores = np.arange(200)
    >>> point = for_precision(scores, scores >= 100, 0.9)
    >>> point.threshold, round(point.bound, 4)
    (111.0, 0.944)
    >>> print(for_precision(scores[:10], scores[:10] >= 5, 0.9).advice)
    10 samples are too few; even 10 alerts without a false one show only 0.6915, and the highest that can be shown is 0.3587
    """
    values, labels = read_samples(scores, target, pos_label)
    _check_inner("precision", precision)
    candidates = _precision_candidates(len(values), _error(confidence))
    alpha = _error(confidence) / len(candidates)
    descending, above = ranked(values, labels)
    best, best_bound, highest = None, 0.0, 0.0
    for alerts in candidates:
        threshold = float(descending[alerts]) if alerts < len(descending) else -math.inf
        number = int(np.count_nonzero(values > threshold))
        hits = int(above[number - 1]) if number else 0
        bound = _clopper_pearson_lower(hits, number, alpha)
        highest = max(highest, bound)
        if bound >= precision:
            best, best_bound = threshold, bound
    requirement = f"precision >= {precision:g}"
    if best is not None:
        return found_point(best, requirement, values, labels, confidence, best_bound)
    reach = _clopper_pearson_lower(len(values), len(values), alpha)
    if reach < precision:
        advice = f"{len(values)} samples are too few; even {len(values)} alerts without a false one show only {_floor(reach)}, "
        advice += f"and the highest that can be shown is {_floor(highest)}"
    else:
        advice = f"the highest that can be shown is {_floor(highest)}"
        advice += "; lower the precision or the confidence, add validation samples, or use a better model"
    return missing_point(math.inf, requirement, values, labels, confidence, advice)


def for_recall(
    scores: Any, target: Any, recall: float, *, confidence: float = CONFIDENCE, pos_label: Any = None
) -> OperatingPoint:
    """Return the highest threshold whose recall on new data is at least ``recall``, with this confidence.

    The bound is exact, see the module. Arguments as for :func:`for_precision`.

    >>> scores = np.arange(200)
    >>> point = for_recall(scores, scores >= 100, 0.9)
    >>> point.recall, round(point.bound, 4)
    (0.96, 0.9108)
    """
    values, labels = read_samples(scores, target, pos_label)
    _check_inner("recall", recall)
    positives = np.sort(values[labels])
    rank = _largest_rank(len(positives), 1.0 - recall, _error(confidence))
    requirement = f"recall >= {recall:g}"
    if rank == 0:
        advice = _too_few(len(positives), "positives", recall, confidence)
        return missing_point(-math.inf, requirement, values, labels, confidence, advice)
    # Decide s >= X_(k): the threshold lies just below it.
    threshold = just_below(values, float(positives[rank - 1]))
    bound = float(betaincinv(len(positives) - rank + 1, rank, _error(confidence)))
    return found_point(threshold, requirement, values, labels, confidence, bound)


def for_fpr(scores: Any, target: Any, fpr: float, *, confidence: float = CONFIDENCE, pos_label: Any = None) -> OperatingPoint:
    """Return the lowest threshold whose false positive rate on new data is at most ``fpr``, with this confidence.

    The bound is exact, see the module. Arguments as for :func:`for_precision`.

    >>> scores = np.arange(200)
    >>> point = for_fpr(scores, scores >= 100, 0.1)
    >>> point.threshold, point.false_positive_rate
    (95.0, 0.04)
    """
    values, labels = read_samples(scores, target, pos_label)
    _check_inner("fpr", fpr)
    return _at_most_rate("FPR", "negatives", fpr, values[~labels], confidence, values, labels)


def for_budget(
    scores: Any, budget: float, *, target: Any = None, confidence: float = CONFIDENCE, pos_label: Any = None
) -> OperatingPoint:
    """Return the lowest threshold that raises alerts for at most this share of new samples, with this confidence.

    It needs no labels; with ``target``, the result also has the observed precision and recall.

    >>> point = for_budget(np.arange(1000), 0.05)
    >>> point.threshold, round(point.bound, 4)
    (961.0, 0.0495)
    """
    known = target is not None
    values, labels = read_samples(scores, target if known else np.zeros(len(to_numpy(scores))), pos_label if known else None)
    _check_inner("budget", budget)
    return _at_most_rate("alerts", "samples", budget, values, confidence, values, labels if known else None)


# --- the bounds -------------------------------------------------------------------------------------------------------------


def _largest_rank(count: int, share: float, error: float) -> int:
    """Return the largest k with ``P(Bin(count, share) <= k - 1) <= error``; 0 if there is none."""
    if count == 0:
        return 0
    ranks = np.arange(1, count + 1)
    # The probability increases with k.
    return int(np.searchsorted(bdtr(ranks - 1.0, count, share), error, side="right"))


def _clopper_pearson_lower(hits: int, trials: int, error: float) -> float:
    """Return the c with ``P(Bin(trials, c) >= hits) = error``; it is below the success rate with confidence ``1 - error``."""
    return float(betaincinv(hits, trials - hits + 1, error)) if hits else 0.0


def _precision_candidates(samples: int, error: float) -> list[int]:
    """Return the numbers of alerts to test: all, and fewer by a constant factor, while they can show a precision of one half.

    k alerts could, if ``0.5 ** k <= error / J``, where J is the number of candidates.
    """
    candidates = [samples]
    while True:
        fewer = math.floor(samples / RANK_FACTOR ** len(candidates))
        if 0.5**fewer > error / (len(candidates) + 1):
            return candidates[::-1]
        candidates.append(fewer)


def _floor(share: float) -> str:
    """Return a share with four digits, rounded down, so that asking for it succeeds."""
    return f"{math.floor(share * 1e4) / 1e4:.4f}"


def _at_most_rate(
    name: str, kind: str, rate: float, pool: np.ndarray, confidence: float, values: np.ndarray, labels: np.ndarray | None
) -> OperatingPoint:
    """Return the lowest threshold that at most this share of new draws from the pool's distribution exceed."""
    error = _error(confidence)
    rank = _largest_rank(len(pool), rate, error)
    requirement = f"{name} <= {rate:g}"
    if rank == 0:
        return missing_point(math.inf, requirement, values, labels, confidence, _too_few(len(pool), kind, 1.0 - rate, confidence))
    threshold = float(np.sort(pool)[len(pool) - rank])
    bound = 1.0 - float(betaincinv(len(pool) - rank + 1, rank, error))
    return found_point(threshold, requirement, values, labels, confidence, bound)


def _too_few(count: int, kind: str, share: float, confidence: float) -> str:
    needed = math.ceil(math.log(_error(confidence)) / math.log(share))
    return f"the validation samples have {count} {kind}, and {needed} are needed for a confidence of {confidence:g}"


def _check_inner(name: str, value: Any) -> None:
    """Check that a share lies strictly between 0 and 1."""
    if _checks.check_positive(name, value) >= 1:
        raise ValueError(f"{name} must be below 1, got {value!r}; 95% is 0.95, and certainty cannot be shown by samples")


def _error(confidence: float) -> float:
    _check_inner("confidence", confidence)
    return 1.0 - confidence
