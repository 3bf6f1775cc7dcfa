"""Structured tasks against all structures, and against blackbox differentiation."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch

import taskloss as tl
from tests.oracles import structures
from tests.oracles.linear import LOSSES, expected
from tests.oracles.structures import structure_answers
from tests.tasks.test_multiclass import criterion_of


@dataclass(frozen=True)
class Case:
    """A solver, all its structures for a shape, the shapes to try, and whether it needs scores below zero."""

    solver: Callable[[np.ndarray], np.ndarray]
    structures: Callable[[tuple[int, int]], np.ndarray]
    shapes: list[tuple[int, int]]
    costs_only: bool = False


CASES = {
    "4 neighbours": Case(
        tl.solvers.GridShortestPath(neighbours=4), lambda s: structures.all_paths(s, 4), [(3, 3), (3, 4), (1, 4)], True
    ),
    "8 neighbours": Case(tl.solvers.GridShortestPath(), lambda s: structures.all_paths(s, 8), [(3, 3), (2, 4), (3, 4)], True),
    "monotone": Case(
        tl.solvers.MonotoneGridPath(), lambda s: structures.all_monotone_paths(s, True), [(3, 3), (3, 4), (4, 4), (1, 3)]
    ),
    "monotone, straight": Case(
        tl.solvers.MonotoneGridPath(diagonal=False), lambda s: structures.all_monotone_paths(s, False), [(3, 3), (3, 4), (1, 1)]
    ),
    "matching": Case(tl.solvers.Assignment(), structures.all_matchings, [(3, 3), (4, 4), (3, 4), (5, 5), (4, 2), (1, 1)]),
}
ROUNDS, BATCH = 40, 25


def random_batch(rng: np.random.Generator, case: Case, known: np.ndarray, shape: tuple[int, int], loss: str, weight: float):
    """Scores, with ties in half of the batches, and a target; costs so high that augmented inference leaves them above zero."""
    if rng.random() < 0.5:
        scores = rng.integers(-4, 5, (BATCH, *shape)) / 4.0
    else:
        scores = rng.standard_normal((BATCH, *shape)) * 10.0 ** rng.integers(-2, 2)
    if loss == "hamming":
        target = known[rng.integers(len(known), size=BATCH)].reshape(BATCH, *shape)
    else:
        target = rng.random((BATCH, *shape))
    if case.costs_only:
        scores = -np.abs(scores) - abs(weight) * np.ceil(target.max())
    return scores, target


@pytest.mark.parametrize("rule", LOSSES)
@pytest.mark.parametrize("loss", ["hamming", "cost", "regret"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_values_and_gradients_equal_enumeration(case, loss, rule):
    rng = np.random.default_rng(20200426)
    ties = 0
    for number in range(ROUNDS):
        shape = case.shapes[number % len(case.shapes)]
        epsilon = float(2.0 ** rng.integers(-4, 3))
        known = case.structures(shape)
        scores, target = random_batch(rng, case, known, shape, loss, 1.0 if rule == "hinge" else epsilon)
        criterion = criterion_of(rule, tl.Structured(case.solver, loss=loss, batched=number % 2 == 0), epsilon)
        leaf = torch.tensor(scores, requires_grad=True)
        values = criterion(leaf, torch.tensor(target), reduction="none")
        values.sum().backward()
        for k in range(BATCH):
            answers = structure_answers(known, target[k], loss)
            wanted = expected(answers, scores[k], rule, epsilon)
            size = max(1.0, np.abs(scores[k]).max())
            assert np.abs(wanted.values - values[k].item()).min() <= 1e-11 * size
            distances = np.abs(wanted.differences() - leaf.grad[k].numpy().reshape(-1)).max(axis=1)
            assert distances.min() <= 1e-12 * max(1.0, abs(wanted.factor))
            ties += wanted.tied
    assert ties > 0 or loss != "hamming"


class Blackbox(torch.autograd.Function):
    """Differentiation of a blackbox solver as published: a minimizer of costs, and a second call at shifted costs."""

    @staticmethod
    def forward(ctx, costs, minimizer, lambda_):
        ctx.minimizer, ctx.lambda_ = minimizer, lambda_
        psi = minimizer(costs)
        ctx.save_for_backward(costs, psi)
        return psi

    @staticmethod
    def backward(ctx, grad_output):
        costs, psi = ctx.saved_tensors
        shifted = ctx.minimizer(costs + ctx.lambda_ * grad_output)
        return -(psi - shifted) / ctx.lambda_, None, None


def best_by_looking(structures: np.ndarray) -> Callable[[torch.Tensor], torch.Tensor]:
    """A minimizer of costs by enumeration."""
    table = torch.tensor(structures)

    def minimizer(costs: torch.Tensor) -> torch.Tensor:
        return table[(costs.reshape(len(costs), -1) @ table.T).argmin(dim=1)].reshape(costs.shape)

    return minimizer


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 7.0])
@pytest.mark.parametrize(
    ("solver", "known", "shape"),
    [
        (tl.solvers.MonotoneGridPath(), structures.all_monotone_paths((3, 4), True), (3, 4)),
        (tl.solvers.Assignment(), structures.all_matchings((4, 4)), (4, 4)),
    ],
    ids=["path", "matching"],
)
def test_the_negative_update_is_blackbox_differentiation(solver, known, shape, epsilon, reduction):
    rng = np.random.default_rng(5)
    instances, entries = 60, shape[0] * shape[1]
    costs = torch.tensor(rng.standard_normal((instances, *shape)))
    true = torch.tensor(known[rng.integers(len(known), size=instances)].reshape(instances, *shape))
    true_costs = torch.tensor(rng.standard_normal((instances, *shape)))
    moved = 0
    for loss, target, entry_share in (("hamming", true, 1 / entries), ("cost", true_costs, 1.0), ("regret", true_costs, 1.0)):
        share = entry_share / (instances if reduction == "mean" else 1)
        leaf = costs.clone().requires_grad_()
        psi = Blackbox.apply(leaf, best_by_looking(known), epsilon / share)
        linear = true * (1 - psi) + (1 - true) * psi if loss == "hamming" else true_costs * psi
        (linear.sum() * share).backward()

        ours = costs.clone().requires_grad_()
        task = tl.Structured(solver, loss=loss, batched=True)
        value = tl.DirectLoss(task, epsilon=epsilon, update="negative", reduction=reduction)(-ours, target)
        value.backward()
        torch.testing.assert_close(ours.grad, leaf.grad, rtol=1e-12, atol=1e-14)
        moved += int((ours.grad != 0).sum())
        if loss != "regret":
            torch.testing.assert_close(value.detach(), linear.sum() * share)
    assert moved > 0


def test_regret_is_cost_above_the_best():
    generator = torch.Generator().manual_seed(0)
    scores, costs = torch.randn(20, 4, 4, generator=generator), torch.rand(20, 4, 4, generator=generator)
    solver = tl.solvers.Assignment()
    cost = tl.DirectLoss(tl.Structured(solver, loss="cost"), reduction="none")(scores, costs)
    regret = tl.DirectLoss(tl.Structured(solver, loss="regret"), reduction="none")(scores, costs)
    best = torch.tensor(solver(-costs.numpy())).mul(costs).sum((1, 2))
    torch.testing.assert_close(regret, (cost - best).float())
    assert (regret >= 0).all()
    assert tl.DirectLoss(tl.Structured(solver, loss="regret"))(-costs, costs).item() == 0.0


def top_two(scores: np.ndarray) -> np.ndarray:
    """Two entries of a vector; also a solver that changes its argument."""
    psi = np.zeros_like(scores)
    psi[np.argsort(scores)[-2:]] = 1.0
    scores[:] = np.nan
    return psi


def test_one_instance_at_a_time_or_any_batch_axes():
    generator = torch.Generator().manual_seed(1)
    scores = torch.randn(3, 2, 5, generator=generator, dtype=torch.float64)
    target = torch.tensor(np.apply_along_axis(top_two, 2, torch.randn(3, 2, 5, generator=generator).numpy()))
    values = tl.DirectLoss(tl.Structured(top_two, batch_dims=2), reduction="none")(scores, target)
    assert values.shape == (3, 2)
    one = tl.DirectLoss(tl.Structured(top_two, batch_dims=0), reduction="none")
    for i in range(3):
        for j in range(2):
            assert one(scores[i, j], target[i, j]) == values[i, j]
    flat = tl.DirectLoss(tl.Structured(top_two), reduction="none")(scores.reshape(6, 5), target.reshape(6, 5))
    assert torch.equal(flat, values.reshape(-1))


def test_a_solver_may_return_tensors_and_see_float64():
    def solver(scores):
        assert scores.dtype == np.float64
        assert scores.shape == (4, 3)
        return torch.nn.functional.one_hot(torch.tensor(scores).argmax(1), 3)

    scores, target = torch.randn(4, 3).bfloat16(), torch.eye(3)[[0, 1, 2, 0]]
    structured = tl.DirectLoss(tl.Structured(solver, batched=True))(scores, target)
    classes = tl.DirectLoss("multi_class")(scores, torch.tensor([0, 1, 2, 0]))
    torch.testing.assert_close(structured, classes * 2 / 3)


@pytest.mark.parametrize(
    ("solver", "error", "message"),
    [
        (lambda s: None, TypeError, r"the solver returned NoneType; expected psi, an array of shape \(3,\)"),
        (lambda s: np.zeros(2), ValueError, r"psi of shape \(2,\) for scores of shape \(3,\).*batched=False"),
        (lambda s: np.full(3, np.nan), ValueError, r"psi\[0\] = nan; expected finite"),
        (lambda s: np.full(3, 2.0), ValueError, r"psi\[0\] = 2.0; the Hamming loss needs entries from 0 to 1"),
        (lambda s: np.eye(3)[s.argmin()], ValueError, "instance 0 scores lower than the truth.*must maximize.*-scores"),
    ],
)
def test_solvers_that_go_wrong(solver, error, message):
    scores, target = torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[0, 0, 1]])
    with pytest.raises(error, match=message):
        tl.DirectLoss(tl.Structured(solver))(scores, target)


def test_worse_answers_can_be_let_through():
    scores, target = torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[0, 0, 1]])

    def minimizer(s):
        return np.eye(3)[s.argmin()]

    with pytest.warns(RuntimeWarning, match="scores lower than the truth, by 2"):
        tl.DirectLoss(tl.Structured(minimizer, on_worse="warn"))(scores, target)
    assert tl.DirectLoss(tl.Structured(minimizer, on_worse="ignore"))(scores, target).item() == pytest.approx(2 / 3)
    with pytest.raises(ValueError, match="scores lower than the truth"):
        tl.DirectLoss(tl.Structured(minimizer, loss="regret"))(scores, torch.tensor([[1.0, 2.0, 3.0]]))


def test_wrong_input_and_settings():
    solver = tl.solvers.Assignment()
    loss = tl.DirectLoss(tl.Structured(solver))
    with pytest.raises(ValueError, match=r"target\[0, 0, 1\] is 0.5; expected the feature psi.*loss='cost'"):
        loss(torch.zeros(1, 2, 2), torch.tensor([[[0, 0.5], [1, 0]]]))
    with pytest.raises(ValueError, match=r"\(2, 2\).*\(1, 2, 2\); expected the same shape"):
        loss(torch.zeros(2, 2), torch.zeros(1, 2, 2))
    with pytest.raises(ValueError, match=r"shape \(3,\); expected 1 batch axes.*batch_dims=0"):
        loss(torch.zeros(3), torch.zeros(3))
    with pytest.raises(ValueError, match=r"target\[0, 1, 0\] is nan; expected finite true costs"):
        tl.DirectLoss(tl.Structured(solver, loss="cost"))(torch.zeros(1, 2, 2), torch.tensor([[[0, 1], [torch.nan, 0]]]))
    with pytest.raises(TypeError, match="solver must be a function of the scores, got int"):
        tl.Structured(3)
    with pytest.raises(ValueError, match="loss='zero_one'"):
        tl.Structured(solver, loss="zero_one")
    with pytest.raises(ValueError, match="on_worse='skip'"):
        tl.Structured(solver, on_worse="skip")
    with pytest.raises(ValueError, match="batch_dims"):
        tl.Structured(solver, batch_dims=-1)
    with pytest.raises(ValueError, match="no use for ignore_index="):
        loss(torch.zeros(1, 2, 2), torch.eye(2)[None], ignore_index=-1)


def test_a_function_as_solver_survives_copies_pickle_and_compile():
    torch._dynamo.reset()
    loss = tl.DirectLoss(tl.Structured(top_two))
    scores = torch.randn(4, 5, generator=torch.Generator().manual_seed(2))
    target = torch.tensor([[1, 1, 0, 0, 0]] * 4)
    for other in (
        copy.deepcopy(loss),
        pickle.loads(pickle.dumps(loss)),
        torch.compile(loss, fullgraph=True, backend="aot_eager"),
    ):
        assert other(scores, target) == loss(scores, target)
    assert copy.deepcopy(loss).task == loss.task
