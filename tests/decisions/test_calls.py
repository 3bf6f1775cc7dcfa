"""What holds for every loss of decisions: calling forms, reductions, dtypes, noise and its state, errors."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable

import numpy as np
import pytest
import torch

import taskloss as tl
from taskloss import decisions

PERTURBED: dict[str, Callable[..., torch.nn.Module]] = {
    "fenchel-young": lambda task, **options: decisions.PerturbedFenchelYoungLoss(task, samples=3, **options),
    "optimizer": lambda task, **options: decisions.PerturbedOptimizerLoss(task, samples=3, **options),
    "solution": lambda task, **options: decisions.PerturbedOptimizerLoss(task, samples=3, objective="solution", **options),
    "direct": lambda task, **options: decisions.PerturbedDirectLoss(task, samples=3, noise="gumbel", **options),
    "implicit MLE": lambda task, **options: decisions.ImplicitMLELoss(task, samples=3, **options),
    "adaptive": lambda task, **options: decisions.AdaptiveImplicitMLELoss(task, samples=3, **options),
}
LOSSES = {**PERTURBED, "identity": decisions.IdentityLoss}
every_loss = pytest.mark.parametrize("make", LOSSES.values(), ids=LOSSES)
every_perturbed_loss = pytest.mark.parametrize("make", PERTURBED.values(), ids=PERTURBED)
TASK = tl.Structured(tl.solvers.Assignment(), loss="regret", batched=True)
GENERATOR = torch.Generator().manual_seed(0)
SCORES, COSTS = torch.randn(4, 3, 3, generator=GENERATOR), torch.rand(4, 3, 3, generator=GENERATOR)


def evaluate(criterion: torch.nn.Module, scores: torch.Tensor = SCORES, target: torch.Tensor = COSTS, **options):
    leaf = scores.detach().clone().requires_grad_()
    value = criterion(leaf, target, **options)
    value.sum().backward()
    return value.detach(), leaf.grad


def same(one, other) -> bool:
    return all(torch.equal(*pair) for pair in zip(one, other, strict=True))


@every_loss
def test_reductions_and_weights(make):
    values, gradient = evaluate(make(TASK, reduction="none"))
    assert values.shape == (4,)
    total = evaluate(make(TASK, reduction="sum"))
    torch.testing.assert_close(total, (values.sum(), gradient))
    torch.testing.assert_close(evaluate(make(TASK)), (values.mean(), gradient / 4))
    weight = torch.tensor([1.0, 0.0, 2.0, 3.0])
    weighted = evaluate(make(TASK), weight=weight)
    torch.testing.assert_close(weighted, ((values * weight).sum() / 6, gradient * weight[:, None, None] / 6))
    torch.testing.assert_close(evaluate(make(TASK), weight=weight, reduction="none")[0], values * weight)


@every_loss
def test_dtypes_batch_axes_and_no_gradient(make):
    values, gradient = evaluate(make(TASK), SCORES.bfloat16().double())
    half = evaluate(make(TASK), SCORES.bfloat16())
    assert (half[0].dtype, half[1].dtype) == (torch.float32, torch.bfloat16)
    torch.testing.assert_close(half[0], values.float())
    torch.testing.assert_close(half[1].double(), gradient, atol=1e-2, rtol=1e-2)
    two_axes = tl.Structured(tl.solvers.Assignment(), loss="regret", batched=True, batch_dims=2)
    shaped = evaluate(make(two_axes, reduction="none"), SCORES.reshape(2, 2, 3, 3), COSTS.reshape(2, 2, 3, 3))
    assert shaped[0].shape == (2, 2)
    torch.testing.assert_close(shaped[1].reshape(4, 3, 3), evaluate(make(TASK, reduction="sum"))[1])
    with torch.no_grad():
        value = make(TASK)(SCORES, COSTS)
    assert not value.requires_grad
    torch.testing.assert_close(value, evaluate(make(TASK))[0])
    one_by_one = tl.Structured(tl.solvers.Assignment(), loss="regret")
    torch.testing.assert_close(evaluate(make(one_by_one)), evaluate(make(TASK)))


@every_perturbed_loss
def test_noise_depends_on_seed_and_call_alone(make):
    criterion = make(TASK)
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002  # The global state is what must not matter.
    first, second = evaluate(criterion), evaluate(criterion)
    torch.manual_seed(2)
    state = torch.random.get_rng_state()
    again = make(TASK)
    assert same(evaluate(again), first)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert same(evaluate(again), second)
    assert not same(first, second)
    assert not same(evaluate(make(TASK, seed=1)), first)


@every_perturbed_loss
def test_the_state_is_saved_copied_and_pickled(make):
    criterion = make(TASK)
    evaluate(criterion)
    state = copy.deepcopy(criterion.state_dict())
    assert state["draws"] == 1
    copies = copy.deepcopy(criterion), pickle.loads(pickle.dumps(criterion)), make(TASK)
    copies[2].load_state_dict(state)
    following = evaluate(criterion)
    assert all(same(evaluate(other), following) for other in copies)


def test_the_adaptive_step_keeps_its_precision_in_a_model_of_half_precision():
    criterion = decisions.AdaptiveImplicitMLELoss(TASK, sigma=1e-3, target=1e9)
    half = torch.nn.ModuleList([copy.deepcopy(criterion)]).to(torch.bfloat16)[0]
    for _ in range(3):
        assert same(evaluate(half), evaluate(criterion))
    assert half.alpha.item() == criterion.alpha.item() == pytest.approx(1.003)


@every_perturbed_loss
def test_all_samples_go_to_the_solver_in_one_call(make):
    shapes = []

    def solver(scores: np.ndarray) -> np.ndarray:
        shapes.append(scores.shape)
        return tl.solvers.Assignment()(scores)

    evaluate(make(tl.Structured(solver, loss="cost", batched=True)))
    perturbed = [shape for shape in shapes if shape == (12, 3, 3)]
    assert len(perturbed) == {"PerturbedDirectLoss": 3, "ImplicitMLELoss": 2, "AdaptiveImplicitMLELoss": 2}.get(
        type(make(TASK)).__name__, 1
    )
    assert set(shapes) <= {(12, 3, 3), (4, 3, 3)}  # The best answer is looked for once per instance.


@every_loss
def test_an_empty_batch(make):
    value, gradient = evaluate(make(TASK), SCORES[:0], COSTS[:0])
    assert value.item() == 0.0
    assert gradient.shape == (0, 3, 3)


def test_compiled_code_calls_the_losses_outside_of_its_graph():
    torch._dynamo.reset()
    criterion = decisions.PerturbedFenchelYoungLoss(TASK)
    wanted = evaluate(copy.deepcopy(criterion), 2 * SCORES)

    @torch.compile(backend="aot_eager")
    def training_loss(scores, costs):
        return criterion(2 * scores, costs)

    value, gradient = evaluate(training_loss)
    torch.testing.assert_close((value, gradient / 2), wanted)


def test_a_positive_update_of_costs_is_warned_of():
    with pytest.warns(UserWarning, match="the positive update of loss='regret'"):
        evaluate(decisions.PerturbedDirectLoss(TASK, update="positive"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        evaluate(decisions.PerturbedDirectLoss(TASK))


def test_wrong_settings_and_input():
    with pytest.raises(TypeError, match="expected a taskloss.Structured task, got AveragePrecision"):
        decisions.PerturbedFenchelYoungLoss(tl.AveragePrecision())
    with pytest.raises(ValueError, match="samples must be at least 2"):
        decisions.PerturbedOptimizerLoss(TASK, samples=1)
    with pytest.raises(ValueError, match="objective='cost'"):
        decisions.PerturbedOptimizerLoss(TASK, objective="cost")
    with pytest.raises(ValueError, match="noise='uniform'"):
        decisions.PerturbedDirectLoss(TASK, noise="uniform")
    with pytest.raises(ValueError, match="sigma must be finite and above zero"):
        decisions.PerturbedFenchelYoungLoss(TASK, sigma=0.0)
    with pytest.raises(ValueError, match="seed must be a whole number"):
        decisions.PerturbedFenchelYoungLoss(TASK, seed=-1)
    with pytest.raises(TypeError, match="symmetric must be True or False"):
        decisions.ImplicitMLELoss(TASK, symmetric=2)
    with pytest.raises(ValueError, match="reduction='max'"):
        decisions.IdentityLoss(TASK)(SCORES, COSTS, reduction="max")
    with pytest.raises(ValueError, match=r"\(4, 3, 3\).*\(3, 3\); expected the same shape"):
        decisions.IdentityLoss(TASK)(SCORES, COSTS[0])
    function = tl.Structured(tl.solvers.Assignment(), loss=lambda psi, target: 0.0)
    with pytest.raises(ValueError, match="relative to a loss that is linear in psi"):
        decisions.AdaptiveImplicitMLELoss(function)
    with pytest.raises(ValueError, match="this needs a task loss that is linear in psi"):
        evaluate(decisions.IdentityLoss(function))
