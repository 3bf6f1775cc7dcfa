"""A metric of the user's own: equal to the built-in tasks on larger rankings, its checks, its life as an object."""

from __future__ import annotations

import copy
import functools
import pickle
import subprocess
import sys
import warnings

import numba
import numpy as np
import pytest
import torch

import taskloss as tl
from taskloss.kernels import ragged
from taskloss.kernels.ranking.function_table import augment_by_table
from taskloss.layout import read_rankings
from taskloss.metrics.separable import BatchTerms
from taskloss.tasks import large_tables
from taskloss.tasks.registry import handle_of
from tests.contract.cases import first_page, root_discount, value_and_gradient


def precision(i, c):
    return i / (i + c)


def discount(i, c):
    return 1 / np.log2(1 + i + c)


def pairs_won(i, c, num_negatives):
    return 1 - c / num_negatives


def first(i, c, k):
    return (i + c <= k) / k


def precision_at_recall(i, c, num_relevant, recall=0.35):
    return (i == np.ceil(recall * num_relevant - 1e-9)) * i / (i + c)


SAME = {
    "average precision": (tl.AveragePrecision(), {"m": precision, "ties": "together", "convex": True}),
    "average precision, table": (tl.AveragePrecision(), {"m": precision, "ties": "together"}),
    "ndcg": (tl.NDCG(), {"m": discount, "convex": True}),
    "ndcg, table": (tl.NDCG(), {"m": discount}),
    "roc auc": (tl.ROCAUC(), {"m": pairs_won, "convex": True}),
    "roc auc, table": (tl.ROCAUC(), {"m": pairs_won}),
    "precision at k": (tl.PrecisionAtK(5), {"m": functools.partial(first, k=5), "normalize": False}),
    "precision at recall": (tl.PrecisionAtRecall(0.35), {"m": precision_at_recall, "ties": "worst", "convex": True}),
}


@pytest.mark.parametrize("update", ["positive", "negative"])
@pytest.mark.parametrize("name", SAME)
def test_equals_the_built_in_task(name, update):
    task, settings = SAME[name]
    own = tl.SeparableMetric(**settings)
    rng = np.random.default_rng(5)
    for k in range(60):
        scores = rng.standard_normal((int(rng.integers(2, 120)), 4))
        if k % 2 and name != "precision at recall":
            # Tied scores, yet no weight of the loss that balances a difference of scores exactly.
            scores = np.round(scores, 1) * 1.0371234
        target = torch.tensor(rng.random(scores.shape) < rng.random())
        results = [
            value_and_gradient(
                tl.DirectLoss(each, epsilon=0.1 * 7.0 ** (k % 3), update=update, reduction="none"), torch.tensor(scores), target
            )
            for each in (task, own)
        ]
        for ours, theirs in zip(*results, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-11)


def test_large_rankings_without_a_table():
    generator = torch.Generator().manual_seed(0)
    target = torch.rand(200_000, generator=generator) < 0.2
    scores = torch.randn(200_000, generator=generator, dtype=torch.float64) + target
    value, gradient = value_and_gradient(tl.DirectLoss("ndcg"), scores, target)
    own_value, own_gradient = value_and_gradient(tl.DirectLoss(tl.SeparableMetric(discount, convex=True)), scores, target)
    torch.testing.assert_close(own_value, value, rtol=0, atol=1e-12)
    # The drops of m are differences of its values, so a few counts may differ by the last bits of the objective.
    assert (own_gradient - gradient).abs().sum() <= 1e-6 * gradient.abs().sum()


def test_mean_over_the_orders_of_large_tied_groups():
    rng = np.random.default_rng(0)
    target = rng.random(6000) < 0.2
    for scores in (np.zeros(6000), rng.integers(0, 3, 6000).astype(float)):
        assert tl.metrics.separable_score(scores, target, discount) == pytest.approx(
            tl.metrics.ndcg_score(scores, target), abs=1e-12
        )
        assert tl.metrics.separable_score(scores, target, pairs_won) == pytest.approx(
            tl.metrics.roc_auc_score(scores, target), abs=1e-12
        )


def test_the_blocks_of_a_table_do_not_show(monkeypatch):
    generator = torch.Generator().manual_seed(1)
    scores = torch.randn(60, 5, generator=generator).mul(3).round()
    target = torch.rand(60, 5, generator=generator) < 0.4
    losses = [
        tl.DirectLoss(tl.SeparableMetric(first_page, normalize=False), update=update) for update in ("positive", "negative")
    ]
    expected = [value_and_gradient(loss, scores, target) for loss in losses]
    for cells in (1, 50, 777):
        monkeypatch.setattr(ragged, "BLOCK_CELLS", cells)
        for loss, (value, gradient) in zip(losses, expected, strict=True):
            again = value_and_gradient(loss, scores, target)
            torch.testing.assert_close(again[0], value)
            assert torch.equal(again[1], gradient)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_table_that_is_too_large_is_refused(sign):
    _, rankings = read_rankings(np.zeros(200), np.arange(200) % 2 == 0)
    terms = BatchTerms(discount, rankings)
    arguments = rankings.lists, terms.ranking, rankings.above, rankings.at_or_above, terms, np.array([sign * 1.0])
    with pytest.raises(ValueError, match="a table of .* GiB for a ranking of 100 positives and 100 negatives.*convex=True"):
        augment_by_table(*arguments, memory_limit=1000)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: tl.SeparableMetric(3), TypeError, r"m must be a function m\(i, c\) of numpy arrays, got int"),
        (lambda: tl.SeparableMetric(lambda i: i), TypeError, r"m cannot be called as m\(i, c\): too many positional"),
        (lambda: tl.SeparableMetric(first), TypeError, "missing a required argument: 'k'.*functools.partial"),
        (lambda: tl.SeparableMetric(discount, ties="half"), ValueError, "ties='half'"),
        (lambda: tl.SeparableMetric(discount, convex=None), TypeError, "convex must be True or False, got None"),
        (lambda: tl.SeparableMetric(discount, normalize=1), TypeError, "normalize must be True or False, got 1"),
        (lambda: tl.SeparableMetric(discount, on_one_class="no"), ValueError, "on_one_class='no'"),
    ],
)
def test_settings_are_checked(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_a_function_that_cannot_be_hashed_is_refused():
    class Term:
        __hash__ = None

        def __call__(self, i, c):
            return i / (i + c)

    with pytest.raises(TypeError, match="m cannot be hashed"):
        tl.SeparableMetric(Term())


def in_place(i, c):
    c += i
    return 1 / c


@pytest.mark.parametrize(
    ("m", "settings", "message"),
    [
        (lambda i, c: i + c, {}, r"m grows with c: m\(1, 0\) is 1 and m\(1, 1\) is 2"),
        (lambda i, c: -1.0 - c, {}, "a perfect list of 2 relevant items has the value -2"),
        (lambda i, c: 1.0 - c, {}, r"ranking 0 goes from -1, all negatives above, to 1.*must not fall below zero"),
        (lambda i, c: 1 / (i + c), {"normalize": False}, r"to 1.5, none above.*normalize=True"),
        (lambda i, c: np.log(0.0 * i), {}, r"m\(1, 1\) is -inf; expected finite"),
        (lambda i, c: np.ones(1), {}, r"m returned float64 of shape \(1,\) for i and c of shape \(2,\).*np.where"),
        (lambda i, c: 1j / (i + c), {}, "m returned complex128"),
        (
            lambda i, c: 1.0 * (i + c <= 2),
            {"convex": True},
            r"m is declared convex in c but is not: m\(1, 0\) = 1, m\(1, 1\) = 1, m\(1, 2\) = 0",
        ),
        (in_place, {}, "read-only"),
    ],
)
def test_functions_that_are_no_metric(m, settings, message):
    scores = torch.tensor([4.0, 3.0, 2.0, 1.0], requires_grad=True)
    with np.errstate(divide="ignore"), pytest.raises(ValueError, match=message):
        tl.DirectLoss(tl.SeparableMetric(m, **settings))(scores, torch.tensor([0, 1, 0, 1]))


def test_terms_that_do_not_suit_ties_together():
    task = tl.SeparableMetric(lambda i, c: (i == 2) * 1.0, ties="together")
    with pytest.raises(ValueError, match="with ties='together' the metric of ranking 0 is 2, above 1"):
        tl.DirectLoss(task)(torch.zeros(3), torch.tensor([1, 1, 0]))


def test_the_shape_of_a_large_grid_is_checked_at_a_sample():
    scores = torch.randn(20_000, generator=torch.Generator().manual_seed(0)).requires_grad_()
    target = torch.arange(20_000) % 5 == 0
    with pytest.raises(ValueError, match="declared convex"):
        tl.DirectLoss(tl.SeparableMetric(lambda i, c: 1.0 * (i + c <= 3000), convex=True))(scores, target)
    with pytest.raises(ValueError, match="m grows with c"):
        tl.DirectLoss(tl.SeparableMetric(lambda i, c: 2.0 - (c < 3000), convex=True))(scores, target)


def test_a_constant_function_and_lists_of_one_class():
    leaf = torch.randn(5, requires_grad=True)
    value = tl.DirectLoss(tl.SeparableMetric(lambda i, c: 1.0))(leaf, torch.tensor([0, 1, 0, 1, 1]))
    value.backward()
    assert value == 0
    assert (leaf.grad == 0).all()
    task = tl.SeparableMetric(pairs_won)
    for target in ([0, 0], [1, 1]):
        assert tl.DirectLoss(task)(torch.randn(2), torch.tensor(target)) == 0
    assert tl.DirectLoss(task)(torch.randn(2), torch.tensor([1, 1]), num_relevant=4) == 0.5
    second = tl.SeparableMetric(lambda i, c: (i == 2) / (i + c.max()), ties="together")
    for target in ([0, 0], [1, 1], [1], []):
        assert tl.DirectLoss(second)(torch.zeros(len(target)), torch.tensor(target)) == 0


def test_pickles_with_a_function_of_a_module():
    loss = tl.DirectLoss(tl.SeparableMetric(root_discount, convex=True))
    assert pickle.loads(pickle.dumps(loss)).task == copy.deepcopy(loss).task == loss.task
    program = (
        "import pickle, sys, torch; loss = pickle.load(sys.stdin.buffer); "
        "print(loss.task, loss(torch.tensor([2.0, 1.0]), torch.tensor([0, 1])).item())"
    )
    result = subprocess.run([sys.executable, "-c", program], input=pickle.dumps(loss), capture_output=True, check=True)
    settings = "normalize=True, ties='mean', convex=True, on_one_class='skip'"
    assert (
        result.stdout.decode()
        == f"SeparableMetric(root_discount, {settings}) {loss(torch.tensor([2.0, 1.0]), torch.tensor([0, 1]))}\n"
    )
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(tl.SeparableMetric(lambda i, c: i / (i + c)))


def test_functions_of_one_name_are_told_apart():
    tasks = [tl.SeparableMetric(m) for m in (lambda i, c: i / (i + c), lambda i, c: 1 / (i + c))]
    assert repr(tasks[0]) == repr(tasks[1])
    assert tasks[0] != tasks[1]
    assert handle_of(tasks[0]) != handle_of(tasks[1])
    assert handle_of(tasks[0]) == handle_of(tl.SeparableMetric(tasks[0].m))
    scores, target = torch.tensor([4.0, 3.0, 2.0, 1.0]), torch.tensor([0, 1, 0, 1])
    torch._dynamo.reset()
    for task in tasks:
        loss = tl.DirectLoss(task)
        assert torch.equal(torch.compile(loss, fullgraph=True, backend="aot_eager")(scores, target), loss(scores, target))
    with pytest.raises(AttributeError):
        tasks[0].convex = True


def test_the_score_is_one_minus_the_loss():
    rng = np.random.default_rng(1)
    scores, target = np.round(rng.standard_normal((60, 4)), 1), rng.random((60, 4)) < 0.3
    for ties in ("mean", "together", "worst"):
        loss = tl.DirectLoss(tl.SeparableMetric(precision, ties=ties))(torch.tensor(scores), torch.tensor(target))
        assert tl.metrics.separable_score(scores, target, precision, ties=ties) == pytest.approx(1 - loss.item(), abs=1e-12)
    assert tl.metrics.separable_score([3, 2, 1], [1, 0, 1], precision, num_relevant=4) == pytest.approx((1 + 2 / 3) / 4)
    each = tl.metrics.separable_score(scores, target, first_page, normalize=False, reduction="none")
    assert each.shape == (4,)
    with pytest.raises(ValueError, match="ties='half'"):
        tl.metrics.separable_score(scores, target, precision, ties="half")
    with pytest.raises(TypeError, match="must be a function"):
        tl.metrics.separable_score(scores, target, 3)


@pytest.mark.parametrize("update", ["positive", "negative"])
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize(
    "m", [lambda i, c: 0.5 ** ((i + c - 1) // 10), first_page, pairs_won], ids=["rank", "relevant", "negatives"]
)
def test_a_compiled_function_gives_the_same(m, update, ties):
    generator = torch.Generator().manual_seed(3)
    scores = torch.randn(300, 3, generator=generator)
    scores = scores.mul(2).round() if ties else scores
    target = torch.rand(300, 3, generator=generator) < 0.3
    options = {"num_relevant": 150} if m is first_page else {}
    plain, compiled = (
        value_and_gradient(
            tl.DirectLoss(tl.SeparableMetric(f, normalize=m is not first_page), update=update), scores, target, **options
        )
        for f in (m, numba.njit(m))
    )
    torch.testing.assert_close(compiled, plain)


def test_a_compiled_function_must_be_finite():
    task = tl.SeparableMetric(numba.njit(lambda i, c: np.inf if c == 5 else 1 / (1 + c)))
    with pytest.raises(ValueError, match=r"m\(1, 5\) is inf"):
        tl.DirectLoss(task)(torch.linspace(1, 0, 9).requires_grad_(), torch.arange(9) % 3 == 0)


def test_a_large_table_of_a_plain_function_is_announced_once(monkeypatch):
    monkeypatch.setattr(large_tables, "SLOW_CELLS", 100)
    scores, target = torch.randn(40, requires_grad=True), torch.arange(40) % 4 == 0
    criterion = tl.DirectLoss(tl.SeparableMetric(root_discount))
    with pytest.warns(UserWarning, match=r"300 values in every step.*numba.njit.*10,000 samples"):
        criterion(scores, target)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        criterion(scores, target)
        tl.DirectLoss(tl.SeparableMetric(numba.njit(lambda i, c: 1 / (i + c))))(scores, target)
        tl.DirectLoss(tl.SeparableMetric(root_discount, convex=True), update="positive")(scores, target)
