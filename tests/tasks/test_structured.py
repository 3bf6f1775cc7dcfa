"""Structured tasks against all structures, and against blackbox differentiation."""

from __future__ import annotations

import copy
import pickle
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch

import taskloss as tl
from tests.oracles import structures
from tests.oracles.linear import LOSSES, Answers, expected
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


@pytest.mark.parametrize(("update", "sign"), [("positive", 1), ("negative", -1), ("central", 1), ("central", -1)])
@pytest.mark.filterwarnings("ignore:the positive update")
def test_a_minimizer_of_costs_is_found_out_by_its_own_answers(update, sign):
    """To the second instance it answers 0 at (1, 2) and 1 at (9, 4), where 0 scores higher."""
    scores, costs = torch.tensor([[5.0, 5.0], [1.0, 2.0]], requires_grad=True), sign * torch.tensor([[1.0, 1.0], [8.0, 2.0]])

    def minimizer(s):
        return np.eye(2)[s.argmin()]

    message = "answer to instance 1 scores lower than its answer to other scores, by .*must maximize"
    with pytest.raises(ValueError, match=message):
        tl.DirectLoss(tl.Structured(minimizer, loss="cost"), update=update)(scores, costs)
    with pytest.warns(RuntimeWarning, match=message):
        tl.DirectLoss(tl.Structured(minimizer, loss="cost", on_worse="warn"), update=update)(scores, costs)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        tl.DirectLoss(tl.Structured(minimizer, loss="cost", on_worse="ignore"), update=update)(scores, costs)
        tl.DirectLoss(tl.Structured(lambda s: np.eye(2)[s.argmax()], loss="cost"), update=update)(scores, costs)


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
    with pytest.raises(TypeError, match="got the task Structured; give the solver in it, task.solver"):
        tl.Structured(tl.Structured(solver))
    with pytest.raises(TypeError, match=r"expected a task .* got Assignment; if it is a solver, write Structured\(solver"):
        tl.DirectLoss(solver)
    with pytest.raises(TypeError, match=r"returned a tuple .*expected psi alone, an array of shape \(2, 2\).*needs \[0\]"):
        tl.DirectLoss(tl.Structured(lambda scores: (solver(scores), 1.0)))(torch.zeros(1, 2, 2), torch.eye(2)[None])
    with pytest.raises(ValueError, match="loss='zero_one'"):
        tl.Structured(solver, loss="zero_one")
    with pytest.raises(ValueError, match="on_worse='skip'"):
        tl.Structured(solver, on_worse="skip")
    with pytest.raises(ValueError, match="batch_dims"):
        tl.Structured(solver, batch_dims=-1)
    with pytest.raises(ValueError, match="no use for ignore_index="):
        loss(torch.zeros(1, 2, 2), torch.eye(2)[None], ignore_index=-1)


@pytest.mark.parametrize(
    ("solver", "batched", "note"),
    [
        (lambda scores: np.eye(4)[scores.argmax(axis=1)], False, r"one instance \(batched=False\): .* shape \(4,\)"),
        (lambda scores: np.eye(4)[scores.argmax() + 4], True, r"a whole batch \(batched=True\): .* shape \(3, 4\)"),
        (lambda scores: torch.relu(scores), True, "a float64 numpy array"),
    ],
)
def test_an_error_of_the_users_solver_says_what_it_was_called_with(solver, batched, note):
    with pytest.raises((TypeError, IndexError)) as caught:
        tl.DirectLoss(tl.Structured(solver, batched=batched))(torch.zeros(3, 4), torch.eye(4)[:3])
    assert re.search(note, caught.value.__notes__[0])


@pytest.mark.parametrize(
    "criterion",
    [
        lambda solver: tl.DirectLoss(tl.Structured(solver, loss="regret")),
        tl.decisions.SPOPlusLoss,
        lambda solver: tl.decisions.PerturbedFenchelYoungLoss(tl.Structured(solver, loss="regret")),
    ],
)
def test_values_that_are_given_as_costs_are_noticed(criterion, recwarn):
    values = torch.tensor([[3.0, 1.0, 2.0], [1.0, 2.0, 0.0]])
    scores = torch.tensor([[1.0, -1.0, 2.0], [2.0, 1.0, 1.0]], requires_grad=True)
    knapsack, one_of_three = tl.solvers.Knapsack([1.0, 1.0, 2.0], 2.0), tl.solvers.TopK(1)
    criterion(knapsack)(scores, -values)
    criterion(knapsack)(scores, values - 1.5)  # To choose nothing is best for no instance.
    criterion(knapsack)(scores[:1], values[:1])  # A single instance may be idle.
    criterion(one_of_three)(scores, values)
    assert not recwarn.list
    with pytest.warns(UserWarning, match=r"choose nothing \(psi = 0\).*minus the values.*take minus both"):
        criterion(knapsack)(scores, values)


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


# --- any loss -----------------------------------------------------------------------------------------------------------------


INTERVALS = np.array([[float(i <= k < j) for k in range(6)] for i in range(6) for j in range(i + 1, 7)])
"""All contiguous runs of six entries."""
WEIGHTS = np.array([3.0, 2.0, 4.0, 1.0, 2.0])
SELECTIONS = np.array([p for p in np.ndindex(*[2] * 5) if WEIGHTS @ p <= 6.0], np.float64)
"""All subsets of five items that a knapsack of 6 holds."""


def iou_error(psi: np.ndarray, ends: np.ndarray) -> float:
    """One minus intersection over union of a run and the one from ``ends[0]`` up to ``ends[1]``; the target is no psi."""
    true = (np.arange(6) >= ends[0]) & (np.arange(6) < ends[1])
    return 1.0 - float((psi * true).sum() / np.maximum(psi, true).sum())


def best_run(scores: np.ndarray) -> np.ndarray:
    return INTERVALS[(INTERVALS @ scores).argmax()]


def best_augmented_run(scores: np.ndarray, ends: np.ndarray, weight: float) -> np.ndarray:
    losses = np.array([iou_error(run, ends) for run in INTERVALS])
    return INTERVALS[(INTERVALS @ scores + weight * losses).argmax()]


def squared_shortfall(psi: np.ndarray, values: np.ndarray) -> np.ndarray:
    """How far a selection stays below a value of 9, squared; a batch."""
    return np.maximum(0.0, 9.0 - (psi * values).sum(axis=-1)) ** 2


def best_selection(scores: np.ndarray) -> np.ndarray:
    return SELECTIONS[(scores @ SELECTIONS.T).argmax(axis=1)]


def best_augmented_selection(scores: np.ndarray, values: np.ndarray, weight: float) -> np.ndarray:
    losses = squared_shortfall(SELECTIONS, values[:, None])
    return SELECTIONS[(scores @ SELECTIONS.T + weight * losses).argmax(axis=1)]


RUNS = tl.Structured(best_run, loss=iou_error, augment=best_augmented_run)
SHORTFALL = tl.Structured(best_selection, loss=squared_shortfall, augment=best_augmented_selection, batched=True)


@pytest.mark.parametrize("rule", LOSSES)
@pytest.mark.parametrize("task", [RUNS, SHORTFALL], ids=["intersection over union", "squared shortfall"])
def test_any_loss_with_its_own_augmented_solver_equals_enumeration(task, rule):
    rng = np.random.default_rng(12)
    known, count = (INTERVALS, 30) if task is RUNS else (SELECTIONS, 60)
    scores = np.round(2 * rng.standard_normal((count, known.shape[1])), 1)
    target = (
        np.sort(rng.permuted(np.tile(np.arange(7), (count, 1)), axis=1)[:, :2]) if task is RUNS else 3 * rng.random(scores.shape)
    )
    leaf = torch.tensor(scores, requires_grad=True)
    values = criterion_of(rule, task, 2.0)(leaf, torch.tensor(target), reduction="none")
    values.sum().backward()
    for k in range(count):
        one = iou_error if task is RUNS else squared_shortfall
        losses = np.array([one(psi, target[k]) for psi in known])
        wanted = expected(Answers(known, losses, losses <= losses.min() + 1e-12), scores[k], rule, 2.0)
        assert (losses <= losses.min() + 1e-9).sum() == 1  # Of several answers of least loss, the task could take another.
        assert np.abs(wanted.values - values[k].item()).min() <= 1e-11
        assert np.abs(wanted.differences() - leaf.grad[k].numpy()).max(axis=1).min() <= 1e-12
    assert leaf.grad.any()


def test_the_linear_losses_as_functions_give_the_same():
    rng = np.random.default_rng(3)
    scores, costs = torch.tensor(rng.standard_normal((20, 4, 4))), torch.tensor(rng.random((20, 4, 4)))
    solver = tl.solvers.Assignment()
    own = tl.Structured(
        solver,
        loss=lambda psi, target: (psi * target).sum((1, 2)),
        augment=lambda scores, target, weight: solver(scores + weight * target),
        batched=True,
    )
    for update in ("negative", "central"):
        gradients = []
        for task in (own, tl.Structured(solver, loss="cost", batched=True)):
            leaf = scores.clone().requires_grad_()
            value = tl.DirectLoss(task, update=update)(leaf, costs)
            value.backward()
            gradients.append(leaf.grad)
        assert torch.equal(*gradients)
    hinge, regret = tl.StructuredHingeLoss(own)(scores, costs), tl.Structured(solver, loss="regret", batched=True)
    best = (torch.tensor(solver(-costs.numpy())) * costs).sum((1, 2)).mean()
    torch.testing.assert_close(hinge - best, tl.StructuredHingeLoss(regret)(scores, costs))


def right_only_without_scores(scores: np.ndarray, values: np.ndarray, weight: float) -> np.ndarray:
    return best_selection(scores) if scores.any() else best_augmented_selection(scores, values, weight)


@pytest.mark.parametrize(
    ("augment", "message"),
    [
        (lambda s, t, w: best_augmented_selection(s, t, -w), "instance 0 is lower in .* than the prediction, by 56 at weight=-1"),
        (lambda s, t, w: best_selection(s), "instance 0 is lower in .* than the prediction, by 56 at weight=-1"),
        (right_only_without_scores, "instance 0 is lower in .* than the answer of least loss, by 39.5 at weight=-2"),
    ],
    ids=["sign", "not augmented", "not augmented with scores"],
)
def test_augmented_solvers_that_go_wrong(augment, message):
    """The prediction has the value 4 and the score 4.5, the best selection 7 and 2: 2 * (5^2 - 2^2) - 2.5 = 39.5."""
    scores, values = torch.tensor([[-1.0, 2.0, -1.0, 1.0, 1.5]] * 2, requires_grad=True), torch.full((2, 5), 1.0)
    values[:, 0], values[:, 1] = 4.0, 2.0
    task = tl.Structured(best_selection, loss=squared_shortfall, augment=augment, batched=True)
    with pytest.raises(ValueError, match=message):
        tl.DirectLoss(task, epsilon=2.0, update="negative")(scores, values)
    tolerant = tl.Structured(best_selection, loss=squared_shortfall, augment=augment, batched=True, on_worse="warn")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        tl.DirectLoss(tolerant, epsilon=2.0, update="negative")(scores, values)
    assert re.search(message, str(caught[0].message))
    ignored = tl.Structured(best_selection, loss=squared_shortfall, augment=augment, batched=True, on_worse="ignore")
    tl.DirectLoss(ignored, epsilon=2.0, update="negative")(scores, values).backward()


def test_a_loss_without_augmented_solver_can_be_evaluated_and_perturbed():
    task = tl.Structured(best_selection, loss=squared_shortfall, batched=True)
    scores, values = torch.tensor([[1.0, 2.0, -1.0, 1.0, 0.0]], requires_grad=True), torch.tensor([[2.0, 1.0, 5.0, 1.0, 1.0]])
    with torch.no_grad():
        assert tl.DirectLoss(task)(scores, values).item() == 25.0  # Items of the values 2, 1 and 1.
    assert task.score(scores, values) == -24.0
    tl.decisions.PerturbedOptimizerLoss(task)(scores, values).backward()
    assert scores.grad.any()
    for criterion in (tl.DirectLoss(task), tl.StructuredHingeLoss(task), tl.decisions.PerturbedFenchelYoungLoss(task)):
        with pytest.raises(ValueError, match=r"give Structured\(..., augment=\)"):
            criterion(scores, values)


def test_wrong_losses_and_augmented_solvers():
    with pytest.raises(ValueError, match="augment= was given with loss='regret'"):
        tl.Structured(best_run, loss="regret", augment=best_augmented_run)
    with pytest.raises(TypeError, match=r"augment must be a function of \(scores, target, weight\), got str"):
        tl.Structured(best_run, loss=iou_error, augment="best")
    with pytest.raises(TypeError, match=r"loss must be a function of \(psi, target\), or one of 'hamming'.*got int"):
        tl.Structured(best_run, loss=1)
    scores, target = torch.zeros(2, 6), torch.tensor([[0, 2], [1, 3]])
    for loss, error, message in (
        (lambda psi, target: np.ones(2), ValueError, r"returned values of shape \(2,\); expected shape \(\)"),
        (lambda psi, target: np.nan, ValueError, "returned nan; expected finite"),
        (lambda psi, target: "large", TypeError, "returned str; expected numbers"),
    ):
        with pytest.raises(error, match=message):
            tl.DirectLoss(tl.Structured(best_run, loss=loss, augment=best_augmented_run))(scores, target)
    with pytest.raises(ValueError, match=r"\(2, 6\).*\(3, 2\); expected the same 1 batch axes, \(2,\): one target per instance"):
        tl.DirectLoss(RUNS)(scores, torch.zeros(3, 2))
    with pytest.raises(ValueError, match=r"shape \(6,\); expected 1 batch axes"):
        tl.StructuredHingeLoss(tl.Structured(best_run, loss=iou_error, batch_dims=1))(torch.zeros(6), torch.zeros(2))
    short = tl.Structured(best_run, loss=iou_error, augment=lambda scores, target, weight: np.zeros(2))
    with pytest.raises(ValueError, match=r"psi of shape \(2,\) for scores of shape \(6,\)"):
        tl.StructuredHingeLoss(short)(scores, target)


def test_a_target_may_hold_nothing():
    task = tl.Structured(best_run, loss=lambda psi, target: psi.sum())
    assert tl.DirectLoss(task)(torch.ones(2, 6), torch.zeros(2, 0)).isfinite()
    assert tl.DirectLoss(task)(torch.ones(0, 6), torch.zeros(0, 0)).item() == 0.0


def test_tasks_with_functions_can_be_copied_and_pickled():
    for task in (RUNS, SHORTFALL):
        assert copy.deepcopy(task) == pickle.loads(pickle.dumps(task)) == task


# --- which update -------------------------------------------------------------------------------------------------------------


def test_default_updates():
    solver = tl.solvers.Assignment()
    assert tl.DirectLoss(tl.Structured(solver)).update == "positive"
    for task in (tl.Structured(solver, loss="cost"), tl.Structured(solver, loss="regret"), RUNS):
        assert task.default_update == tl.DirectLoss(task).update == "central"
    assert "update='central'" in repr(tl.DirectLoss(tl.Structured(solver, loss="regret")))


def said(criterion: torch.nn.Module, target: torch.Tensor) -> list[str]:
    generator = torch.Generator().manual_seed(4)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            criterion(torch.randn(target.shape, generator=generator).requires_grad_(torch.is_grad_enabled()), target)
    return [str(warning.message) for warning in caught if "the positive update of" in str(warning.message)]


def test_the_positive_update_of_costs_is_warned_of_once():
    costs = torch.rand(3, 4, 4, generator=torch.Generator().manual_seed(5))
    solver = tl.solvers.Assignment()
    for loss in ("cost", "regret"):
        task = tl.Structured(solver, loss=loss)
        assert said(tl.DirectLoss(task, update="positive"), costs) == [
            f"the positive update of loss='{loss}' moves toward its own prediction and away from the most expensive answer "
            "within reach of epsilon: it never looks at a better answer, and from scratch it learns slowly or not at all. Use "
            "update='central', the default of this task, or 'negative' if costs at equal features hardly vary"
        ]
        for other in (tl.DirectLoss(task), tl.DirectLoss(task, update="negative"), tl.StructuredHingeLoss(task)):
            assert not said(other, costs)
        with torch.no_grad():  # Nothing is learned.
            assert not said(tl.DirectLoss(task, update="positive"), costs)
    assert not said(tl.DirectLoss(tl.Structured(solver), update="positive"), torch.eye(4).expand(3, 4, 4))


def knapsack(scores: np.ndarray) -> np.ndarray:
    """Fill 30% of the room, whole items of equal weight: the six best of 20, if they are worth anything."""
    psi = np.zeros_like(scores)
    np.put_along_axis(psi, np.argsort(-scores, axis=1)[:, :6], 1.0, axis=1)
    return psi * (scores > 0)


def test_the_default_update_learns_values_from_scratch_and_the_positive_one_does_not():
    rng = np.random.default_rng(0)
    x, mixing = rng.standard_normal((300, 5)), rng.integers(0, 2, (5, 20))
    values = ((x @ mixing / np.sqrt(5) + 3) ** 4 + 1) / 3.5**4
    features, costs = torch.tensor(x).float(), -torch.tensor(values).float()
    task = tl.Structured(knapsack, loss="regret", batched=True)
    regrets = {}
    for update in ("central", "negative", "positive"):
        torch.manual_seed(0)
        net = torch.nn.Linear(5, 20)
        optimizer = torch.optim.Adam(net.parameters(), lr=0.05)
        criterion = tl.DirectLoss(task, epsilon=10.0, update=update)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(60):
                optimizer.zero_grad()
                criterion(net(features), costs).backward()
                optimizer.step()
        best = -(torch.tensor(knapsack(values)) * costs).sum(1).mean()
        with torch.no_grad():
            regrets[update] = (criterion(net(features), costs) / best).item()
    assert max(regrets["central"], regrets["negative"]) < 0.03
    assert regrets["positive"] > 0.1
