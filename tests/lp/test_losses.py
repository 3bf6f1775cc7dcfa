"""The metrics as linear programs: gradients, calling forms, extremes, and bounds on their metrics."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import taskloss as tl
from tests.lp.test_formulations import random_scores

BINARY = {
    "hinge": tl.lp.AUCLoss(0.7),
    "ramp": tl.lp.AUCLoss(0.7, "ramp"),
    "f1": tl.lp.FScoreLoss(margin=0.0),
    "f2": tl.lp.FScoreLoss(2.0, margin=0.2),
    "jaccard": tl.lp.JaccardLoss(),
    "odd ratio": tl.lp.RatioLoss((1, 2, -1, 0.5), (1, 1.5, 2, 0.25), margin=0.1),
    "precision": tl.lp.PrecisionAtRecallLoss(0.7, margin=0.2),
    "precision, two sides": tl.lp.PrecisionAtRecallLoss(0.9, margin=0.1, two_sided=True),
    "recall": tl.lp.RecallAtPrecisionLoss(0.8, margin=0.1),
    "recall, two sides": tl.lp.RecallAtPrecisionLoss(0.8, margin=0.1, two_sided=True),
}
CLASSES = {
    "mu": tl.lp.MultiClassAUCLoss(margin=0.7),
    "mu, ramp": tl.lp.MultiClassAUCLoss(margin=0.7, form="ramp"),
    "costs": tl.lp.MultiClassAUCLoss("costs", [[0, 1, 4], [2, 0, 1], [1, 3, 0]]),
    "one against all": tl.lp.MultiClassAUCLoss("one_vs_all"),
}
RANKINGS = BINARY.keys() - {"f1", "f2", "jaccard", "odd ratio"}
binary = pytest.mark.parametrize("name", BINARY)
every = pytest.mark.parametrize("name", [*BINARY, *CLASSES])


def criterion_of(name: str) -> torch.nn.Module:
    return {**BINARY, **CLASSES}[name]


def with_solver(criterion: torch.nn.Module, solver: str) -> torch.nn.Module:
    twin = copy.deepcopy(criterion)
    twin.solver = solver
    return twin


def example(name: str, seed: int, n: int = 9) -> tuple[torch.Tensor, torch.Tensor]:
    """Return float64 scores in general position and a target with all classes present."""
    rng = np.random.default_rng(seed)
    if name in CLASSES:
        return torch.from_numpy(rng.standard_normal((n, 3))), torch.from_numpy(np.arange(n) % 3)
    target = rng.permutation(np.arange(n) < rng.integers(1, n))
    return torch.from_numpy(rng.standard_normal(n) + target), torch.from_numpy(target)


def value_and_gradient(criterion, scores, target, **options):
    leaf = scores.clone().requires_grad_()
    value = criterion(leaf, target, **options)
    (gradient,) = torch.autograd.grad(value.sum(), leaf)
    return value.detach(), gradient


@every
def test_both_solvers_have_one_value_and_one_gradient(name):
    criterion = criterion_of(name)
    for seed in range(12):
        scores, target = example(name, seed)
        value, gradient = value_and_gradient(criterion, scores, target)
        solved, solved_gradient = value_and_gradient(with_solver(criterion, "lp"), scores, target)
        assert value.item() == pytest.approx(solved.item(), rel=1e-8, abs=1e-8)
        np.testing.assert_allclose(gradient, solved_gradient, rtol=1e-6, atol=1e-6, err_msg=str(seed))


@every
def test_finite_differences(name):
    criterion = criterion_of(name)
    for seed in range(40):
        scores, target = example(name, seed)
        _, gradient = value_and_gradient(criterion, scores, target)
        direction = torch.from_numpy(np.random.default_rng(seed).standard_normal(scores.shape))
        step = 1e-6
        ends = [criterion(scores + sign * step * direction, target).item() for sign in (1, -1)]
        assert (gradient * direction).sum().item() == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-4, abs=1e-6), seed


@every
def test_float32_half_and_gradient_of_the_output(name):
    criterion = criterion_of(name)
    scores, target = example(name, 3)
    _, gradient = value_and_gradient(criterion, scores, target)
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float16, 5e-3), (torch.bfloat16, 5e-2)):
        rounded = scores.to(dtype)
        near, near_gradient = value_and_gradient(criterion, rounded, target)
        assert near.dtype == torch.float32
        assert near_gradient.dtype == dtype
        exact_value, exact_gradient = value_and_gradient(criterion, rounded.double(), target)
        assert near.item() == pytest.approx(exact_value.item(), abs=1e-5)
        np.testing.assert_allclose(near_gradient.double(), exact_gradient, atol=tolerance)
    leaf = scores.clone().requires_grad_()
    (3.0 * criterion(leaf, target)).backward()
    np.testing.assert_allclose(leaf.grad, 3.0 * gradient, rtol=1e-12)


@every
def test_no_second_derivative(name):
    scores, target = example(name, 0)
    scores.requires_grad_()
    (gradient,) = torch.autograd.grad(criterion_of(name)(scores, target), scores, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivative"):
        gradient.square().sum().backward()


@every
def test_the_order_of_the_samples_does_not_matter(name):
    for seed in range(5):
        scores, target = example(name, seed)
        scores = (2 * scores).round() / 2
        order = torch.from_numpy(np.random.default_rng(seed).permutation(len(target)))
        value, gradient = value_and_gradient(criterion_of(name), scores, target)
        moved, moved_gradient = value_and_gradient(criterion_of(name), scores[order], target[order])
        assert value.item() == pytest.approx(moved.item(), rel=1e-13)
        np.testing.assert_allclose(gradient[order], moved_gradient, rtol=1e-12, atol=1e-14)


@binary
@pytest.mark.parametrize("solver", ["exact", "lp"])
def test_calling_forms(name, solver):
    """Columns, rows, groups, ignored samples and weights give the same as single calls."""
    criterion = with_solver(criterion_of(name), solver)
    rng = np.random.default_rng(0)
    scores, target = torch.from_numpy(rng.standard_normal((8, 2))), torch.from_numpy(np.arange(16).reshape(8, 2) % 3 == 0)
    single = [value_and_gradient(criterion, scores[:, k], target[:, k]) for k in range(2)]
    values, gradient = value_and_gradient(criterion, scores, target, reduction="none")
    near = {"rtol": 1e-7, "atol": 1e-8}
    np.testing.assert_allclose(values, [value.item() for value, _ in single], **near)
    np.testing.assert_allclose(gradient, torch.stack([part for _, part in single], 1), **near)
    np.testing.assert_allclose(criterion(scores.T, target.T, dim=1), values.mean(), **near)
    np.testing.assert_allclose(criterion(scores, target, reduction="sum"), values.sum(), **near)
    weight = torch.tensor([1.0, 3.0])
    np.testing.assert_allclose(criterion(scores, target, weight=weight), (values * weight).sum() / 4, **near)
    flat, labels, groups = scores.T.reshape(-1), target.T.reshape(-1), torch.tensor([7, 2]).repeat_interleave(8)
    np.testing.assert_allclose(criterion(flat, labels, groups=groups, reduction="none"), values.flip(0), **near)
    padded = torch.cat([flat[:8], torch.tensor([-torch.inf])]), torch.cat([labels[:8].long(), torch.tensor([-1])])
    value, gradient = value_and_gradient(criterion, *padded, ignore_index=-1)
    np.testing.assert_allclose(value, values[0], **near)
    np.testing.assert_allclose(gradient[:8], single[0][1], **near)
    assert gradient[8] == 0


@every
@pytest.mark.parametrize("solver", ["exact", "lp"])
@pytest.mark.parametrize("size", [1, 3])
def test_one_class(name, solver, size):
    """A ranking with one class has the value zero; a labeling is defined, with 0/0 = 1."""
    criterion = with_solver(criterion_of(name), solver)
    shape = (size, 3) if name in CLASSES else (size,)
    for label in (0, 1):
        scores = torch.linspace(-1, 1, 3 * size, dtype=torch.float64)[: int(np.prod(shape))].reshape(shape)
        value, gradient = value_and_gradient(criterion, scores, torch.full((size,), label))
        assert torch.isfinite(value)
        assert torch.isfinite(gradient).all()
        if name in RANKINGS | CLASSES.keys():
            assert value == 0
            assert (gradient == 0).all()
    if name == "f1":
        target = torch.zeros(size, dtype=torch.int64)
        assert criterion(torch.full((size,), -1.0), target).item() == 0.0
        assert criterion(torch.full((size,), 1.0), target).item() == 1.0
        assert tl.lp.fscore_loss(torch.full((size,), -1.0), target, margin=0.0, zero_division=0.0).item() == 1.0


@pytest.mark.parametrize("name", [name for name in [*BINARY, *CLASSES] if name not in ("costs", "odd ratio")])
def test_constant_scores_can_train(name):
    """The gradient at constant scores has the right sign for every sample."""
    shape, target = ((6, 3), torch.arange(6) % 3) if name in CLASSES else ((6,), torch.arange(6) < 2)
    _, gradient = value_and_gradient(criterion_of(name), torch.zeros(shape, dtype=torch.float64), target)
    if name in CLASSES:
        own = torch.nn.functional.one_hot(target, 3).bool()
        assert gradient[own].max() < 0
        assert gradient[~own].min() >= 0
    else:
        assert gradient[target].max() < 0
        assert gradient[~target].min() > 0


@pytest.mark.parametrize("name", sorted(name for name in RANKINGS if "ramp" not in name))
def test_the_gradient_with_respect_to_phi_sums_to_zero(name):
    """Adding a constant to all phi changes no ranking loss (tested with phi = identity)."""
    rng = np.random.default_rng(0)
    task = criterion_of(name).task
    for _ in range(20):
        scores, target = torch.from_numpy(rng.uniform(-1, 1, 9)), torch.from_numpy(rng.permutation(np.arange(9) < 4))
        if name == "hinge":
            loss = tl.lp.AUCLoss(0.7)
        elif task.at_recall:
            loss = tl.lp.PrecisionAtRecallLoss(task.bound, margin=0.1, two_sided=task.two_sided, phi=torch.positive)
        else:
            loss = tl.lp.RecallAtPrecisionLoss(task.bound, margin=0.1, two_sided=task.two_sided, phi=torch.positive)
        _, gradient = value_and_gradient(loss, scores, target)
        assert gradient.sum().item() == pytest.approx(0.0, abs=1e-12)


@given(
    st.lists(
        st.tuples(
            st.one_of(st.floats(-3, 3), st.sampled_from([0.0, -0.0, 1e30, -1e30, 1e308, -1e308, 5e-324, 20.0, -20.0])),
            st.booleans(),
        ),
        min_size=1,
        max_size=12,
    )
)
def test_extreme_scores_stay_finite_and_in_range(samples):
    scores = torch.tensor([score for score, _ in samples], dtype=torch.float64)
    target = torch.tensor([label for _, label in samples])
    for name, criterion in BINARY.items():
        value, gradient = value_and_gradient(criterion, scores, target)
        assert not torch.isnan(value), name
        assert torch.isfinite(gradient).all(), name
        if name not in ("hinge", "odd ratio", "recall", "recall, two sides", "precision, two sides"):
            assert -1e-12 <= value <= 1 + 1e-12, name
    classes = torch.stack([scores, scores.flip(0), torch.zeros_like(scores)], 1), torch.arange(len(scores)) % 3
    for name, criterion in CLASSES.items():
        value, gradient = value_and_gradient(criterion, *classes)
        assert not torch.isnan(value), name
        assert torch.isfinite(gradient).all(), name


def test_one_huge_score_does_not_wipe_out_the_others():
    scores, target = torch.tensor([1e30, 0.25, 0.0, -1e30], dtype=torch.float64), torch.tensor([1, 1, 0, 0])
    assert tl.lp.auc_loss(scores, target).item() == 0.75 / 4
    assert tl.lp.auc_loss(scores, target, form="ramp").item() == 0.75 / 4


def test_bounds():
    """Ramp and hinge over margin bound 1 - AUC from above; the F-score program without margin bounds 1 - F from below."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        scores, target = random_scores(rng, 8), rng.permutation(np.arange(8) < rng.integers(1, 8))
        pair = torch.from_numpy(scores), torch.from_numpy(target)
        area = tl.metrics.roc_auc_score(scores, target)
        strict = np.mean(scores[target][:, None] > scores[~target])
        for form, scale in (("ramp", 1.0), ("hinge", 0.5)):
            assert tl.lp.auc_loss(*pair, margin=0.5, form=form).item() / scale >= 1 - strict - 1e-12 >= -1e-12
        assert area >= strict
        f1 = tl.metrics.fbeta_score(scores, target)
        assert tl.lp.fscore_loss(*pair, margin=0.0).item() <= 1 - f1 + 1e-12


def test_half_a_margin_is_the_soft_dice_loss():
    scores, target = example("f1", 0)
    label = torch.sigmoid(2 * scores)
    dice = 1 - 2 * label[target].sum() / (label.sum() + target.sum())
    assert tl.lp.fscore_loss(scores, target, margin=0.5).item() == pytest.approx(dice.item(), rel=1e-12)


def test_segmentation_forms():
    pixels, mask = torch.randn(2, 3, 4, 4, dtype=torch.float64), torch.randint(3, (2, 4, 4))
    values = tl.lp.JaccardLoss(reduction="none")(pixels, mask)
    assert values.shape == (2, 3)
    assert values[1, 2].item() == pytest.approx(tl.lp.jaccard_loss(pixels[1, 2].reshape(-1), (mask[1] == 2).reshape(-1)).item())
    areas = tl.lp.multi_class_auc_loss(pixels, mask)
    rows = pixels.movedim(1, -1).reshape(-1, 3)
    assert areas.item() == pytest.approx(tl.lp.multi_class_auc_loss(rows, mask.reshape(-1)).item())


@every
def test_modules_copy_pickle_compile_and_transform(name):
    criterion = criterion_of(name)
    scores, target = example(name, 1)
    expected, gradient = value_and_gradient(criterion, scores, target)
    for twin in (copy.deepcopy(criterion), pickle.loads(pickle.dumps(criterion))):
        assert twin(scores, target) == expected
    assert torch.equal(torch.func.grad(lambda s: criterion(s, target))(scores), gradient)
    assert type(criterion).__name__ in repr(criterion)


@pytest.mark.parametrize("name", ["hinge", "f1", "precision", "mu"])
def test_torch_compile(name):
    criterion = criterion_of(name)
    scores, target = example(name, 1)
    expected, gradient = value_and_gradient(criterion, scores, target)
    compiled = torch.compile(criterion, fullgraph=True, backend="aot_eager")
    value, compiled_gradient = value_and_gradient(compiled, scores, target)
    assert value == expected
    assert torch.equal(compiled_gradient, gradient)


def test_phi_is_the_callers():
    scores, target = example("f1", 2)

    def soft_sign(s):
        return s / (1 + s.abs())

    for make in (tl.lp.FScoreLoss, tl.lp.PrecisionAtRecallLoss, tl.lp.RecallAtPrecisionLoss):
        value, gradient = value_and_gradient(make(phi=soft_sign), scores, target)
        solved, solved_gradient = value_and_gradient(make(phi=soft_sign, solver="lp"), scores, target)
        assert value.item() == pytest.approx(solved.item(), abs=1e-8)
        np.testing.assert_allclose(gradient, solved_gradient, atol=1e-6)
        assert make(phi=torch.tanh)(scores, target).item() == pytest.approx(make()(scores, target).item(), rel=1e-12)
        with pytest.raises(ValueError, match=r"phi to map scores to \[-1, 1\]"):
            make(phi=torch.positive)(10 * scores, target)


def test_the_f_score_of_four_samples_by_hand():
    """With phi(s) = s and margin 0: A = 1 + 0.5, B = 0.5, F1 = 2 A / (A + B + P) = 3 / 4."""
    scores = torch.tensor([1.0, -0.5, 0.5, -1.0], dtype=torch.float64)
    value, gradient = value_and_gradient(tl.lp.FScoreLoss(margin=0.0, phi=torch.positive), scores, torch.tensor([1, 1, 0, 0]))
    assert value.item() == 0.25
    # dF/dA = (2 - F) / (A + B + P) = 1.25 / 4, dF/dB = -F / (A + B + P) = -0.75 / 4. The first and the last sample
    # have the labels 1 and 0, which do not move.
    assert gradient.tolist() == [0.0, -1.25 / 4, 0.75 / 4, 0.0]


def test_a_single_labeling_is_a_column():
    for seed in range(20):
        scores, target = example("f1", seed)
        for criterion in (tl.lp.FScoreLoss(), tl.lp.FScoreLoss(0.5, margin=0.0), tl.lp.JaccardLoss(margin=0.5)):
            for labels in (target, target.long(), target.byte(), target.int(), target.float(), target.double()):
                for values in (scores, scores.float()):
                    value, gradient = value_and_gradient(criterion, values, labels)
                    column, column_gradient = value_and_gradient(criterion, values[:, None], labels[:, None])
                    assert value.dtype == gradient.dtype == values.dtype
                    assert value.item() == column.item()
                    assert torch.equal(gradient, column_gradient[:, 0])


@pytest.mark.parametrize(
    "view",
    [
        pytest.param(lambda tensor: (-tensor)._neg_view(), id="negated when it is read"),
        pytest.param(lambda tensor: torch.stack([tensor, tensor + 9.0], 1)[:, 0], id="with gaps"),
        pytest.param(lambda tensor: tensor[:1].expand(len(tensor)), id="one value many times"),
    ],
)
def test_unusual_memory(view):
    def of_given_memory(scores, target):
        # Unlike a clone, this leaf has the memory of the scores.
        leaf = scores.detach().requires_grad_()
        value = tl.lp.fscore_loss(leaf, target)
        return value.item(), torch.autograd.grad(value, leaf)[0]

    scores, target = torch.tensor([0.3, -1.2, 0.8, 2.0, -0.1]), torch.tensor([1.0, 0.0, 1.0, 0.0, 1.0])
    for batch in ((view(scores), target), (scores, view(target)), (view(scores), view(target))):
        plain = [torch.tensor(tensor.tolist()) for tensor in batch]
        (value, gradient), (expected, expected_gradient) = of_given_memory(*batch), of_given_memory(*plain)
        assert value == expected
        assert torch.equal(gradient, expected_gradient)


@pytest.mark.parametrize("zeros", [torch._efficientzerotensor(3), torch._efficientzerotensor(4)[1:]])
def test_zero_tensors_without_memory(zeros):
    scores, target = torch.tensor([0.5, -0.5, 1.0]), torch.tensor([1, 0, 1])
    assert tl.lp.fscore_loss(zeros, target).item() == tl.lp.fscore_loss(torch.zeros(3), target).item()
    assert tl.lp.fscore_loss(scores, zeros).item() == tl.lp.fscore_loss(scores, torch.zeros(3)).item()


@pytest.mark.filterwarnings("ignore:`torch.jit.trace` is deprecated")
def test_device_modes_and_tracers():
    scores, target = torch.tensor([0.5, -0.5, 1.0]), torch.tensor([1, 0, 1])
    expected = tl.lp.fscore_loss(scores, target)
    with torch.device("meta"):
        assert tl.lp.fscore_loss(scores, target).item() == expected.item()
    with pytest.warns(torch.jit.TracerWarning):
        traced = torch.jit.trace(lambda s: tl.lp.fscore_loss(s, target) * s.sum(), (scores,), check_trace=False)
    assert traced(scores).item() == pytest.approx((expected * scores.sum()).item())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: tl.lp.AUCLoss(0.0), "margin must be finite and above zero"),
        (lambda: tl.lp.AUCLoss(form="square"), "form='square' is not known"),
        (lambda: tl.lp.AUCLoss(solver="simplex"), "solver='simplex' is not known"),
        (lambda: tl.lp.FScoreLoss(margin=0.6), "between 0 and 0.5"),
        (lambda: tl.lp.FScoreLoss(beta=-1.0), "beta must be finite and above zero"),
        (lambda: tl.lp.RatioLoss((1, 0, 0), (1, 1, 1, 1)), "numerator must be four finite numbers"),
        (lambda: tl.lp.RatioLoss((1, 0, 0, 0), (1, -1, 1, 1)), "no coefficient below zero"),
        (lambda: tl.lp.PrecisionAtRecallLoss(1.2), "recall must be at most 1"),
        (lambda: tl.lp.RecallAtPrecisionLoss(slack=0.0), "slack must be finite and above zero"),
        (lambda: tl.lp.MultiClassAUCLoss("costs"), "cost= belongs to kind='costs'"),
        (lambda: tl.lp.MultiClassAUCLoss("one_vs_all", [[0, 1], [1, 0]]), "cost= belongs to kind='costs'"),
        (lambda: tl.lp.FScoreLoss()(torch.tensor([torch.nan, 1.0]), torch.tensor([1, 0])), r"scores\[0\] is nan"),
        (lambda: tl.lp.FScoreLoss()(torch.zeros(2), torch.tensor([1, -1])), "labels -1/\\+1"),
        (lambda: tl.lp.AUCLoss()(torch.zeros(3), torch.zeros(2)), "expected the same shape"),
        (lambda: tl.lp.multi_class_auc_loss(torch.zeros(3, 2), torch.tensor([0, 1, 2])), "class indices from 0 to 1"),
        (lambda: tl.lp.multi_class_auc_loss(torch.zeros(3, 2), torch.zeros(3).long(), groups=[0, 0, 1]), "no use for groups="),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
