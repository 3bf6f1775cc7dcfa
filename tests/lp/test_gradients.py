"""The gradients of the layer against finite differences, each other and what must be finite."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

from taskloss.lp import LinearProgram, LPLayer, SparseMatrix, Status, differentiable_solve
from tests.oracles.fscore_program import fscore_program

NAMES = ("c", "A_ub", "b_ub", "A_eq", "b_eq", "lower", "upper")


def random_program(seed: int, batch: tuple[int, ...] = ()) -> list[torch.Tensor]:
    """A bounded feasible program whose solution is, almost surely, a unique non-degenerate vertex."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*batch, *shape, generator=generator, dtype=torch.float64)

    n, m, e = 5, 7, 1
    inside = torch.rand(*batch, n, generator=generator, dtype=torch.float64)
    a_ub, a_eq = normal(m, n), normal(e, n)
    slack = 0.5 * torch.rand(*batch, m, generator=generator, dtype=torch.float64)
    at = inside[..., None]
    return [
        normal(n),
        a_ub,
        (a_ub @ at)[..., 0] + slack,
        a_eq,
        (a_eq @ at)[..., 0],
        torch.full((*batch, n), -0.3, dtype=torch.float64),
        torch.full((*batch, n), 1.4, dtype=torch.float64),
    ]


def value_and_gradients(function, data):
    leaves = [tensor.clone().requires_grad_() for tensor in data]
    value = function(*leaves)
    found = torch.autograd.grad(value, leaves, allow_unused=True)
    return value, [torch.zeros_like(leaf) if gradient is None else gradient for leaf, gradient in zip(leaves, found, strict=True)]


@pytest.mark.parametrize("batch", [(), (3,)], ids=["single", "batch"])
@pytest.mark.parametrize("mode", ["active_set", "smoothed", "unrolled", "value"])
def test_finite_differences(mode, batch):
    """Directional derivatives in each argument alone, bounds and equations included."""
    for seed in range(12):
        data = random_program(seed, batch)
        weight = torch.randn(5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)

        def function(*arguments, weight=weight):
            solution = differentiable_solve(LinearProgram(*arguments), gradient=mode, epsilon=0.05, tolerance=1e-10)
            return solution.objective.sum() if mode == "value" else (solution.x * weight).sum()

        _, gradients = value_and_gradients(function, data)
        for position, (name, tensor, gradient) in enumerate(zip(NAMES, data, gradients, strict=True)):
            direction = torch.randn(tensor.shape, generator=torch.Generator().manual_seed(position), dtype=torch.float64)
            ends = []
            for step in (1e-6, -1e-6):
                moved = list(data)
                moved[position] = tensor + step * direction
                ends.append(function(*moved))
            difference = float(ends[0] - ends[1]) / 2e-6
            assert float((gradient * direction).sum()) == pytest.approx(difference, rel=1e-5, abs=1e-5), (name, seed)


def test_a_ridge_is_differentiated_too():
    data = random_program(1)
    options = {"gradient": "smoothed", "epsilon": 0.1, "ridge": 0.5}
    _, gradients = value_and_gradients(lambda *d: differentiable_solve(LinearProgram(*d), **options).x.sum(), data)
    moved = [differentiable_solve(LinearProgram(data[0] + step, *data[1:]), **options).x.sum() for step in (1e-6, -1e-6)]
    assert float(gradients[0].sum()) == pytest.approx(float(moved[0] - moved[1]) / 2e-6, rel=1e-5)


def test_the_vertex_has_no_gradient_in_the_cost_but_the_smoothed_minimizer_has():
    data = random_program(0)
    for mode, moves in (("active_set", False), ("smoothed", True)):
        _, gradients = value_and_gradients(
            lambda *d, mode=mode: differentiable_solve(LinearProgram(*d), gradient=mode, epsilon=0.1).x[0], data
        )
        assert bool(gradients[0].abs().max() > 1e-6) == moves


def test_active_set_and_unrolled_gradients_agree_on_the_fscore_program():
    """The paper reports a mean cosine of 0.9991 over 100 batches."""
    generator = torch.Generator().manual_seed(0)
    target = (torch.rand(100, 16, generator=generator) < 0.4).double()
    target[:, 0] = 1.0
    scores = torch.randn(100, 16, generator=generator, dtype=torch.float64)
    weight = torch.randn(100, 17, generator=generator, dtype=torch.float64)
    gradients = []
    for options in ({"gradient": "active_set"}, {"gradient": "unrolled", "epsilon": 1e-4}):
        leaf = scores.clone().requires_grad_()
        solution = LPLayer(**options)(**fscore_program(leaf, target))
        (gradient,) = torch.autograd.grad((solution.x * weight).sum(), leaf)
        gradients.append(gradient)
    cosine = torch.nn.functional.cosine_similarity(*gradients, dim=1)
    assert float(cosine.mean()) >= 0.999


@pytest.mark.parametrize("mode", ["active_set", "smoothed", "unrolled", "value"])
def test_degenerate_programs_have_finite_gradients(mode):
    """A vertex with too many rows, a whole face of solutions, dependent equations, a fixed variable, no constraint at all."""
    one = torch.ones(2, dtype=torch.float64)
    eye = torch.eye(2, dtype=torch.float64)
    rows = torch.cat([eye, eye, one[None], 2 * eye])
    cases = [
        (-one, {"A_ub": rows, "b_ub": rows @ one}),
        (one, {"A_eq": one[None], "b_eq": one[:1], "lower": 0 * one}),
        (one, {"A_eq": torch.stack([one, 2 * one]), "b_eq": torch.stack([one[0], 2 * one[0]]), "lower": 0 * one}),
        (one, {"lower": one, "upper": one}),
        (0 * one, {"lower": -one}),
    ]
    for cost, constraints in cases:
        leaves = {name: tensor.clone().requires_grad_() for name, tensor in {"c": cost, **constraints}.items()}
        solution = differentiable_solve(LinearProgram(**leaves), gradient=mode)
        assert solution.status is Status.OPTIMAL
        found = torch.autograd.grad((solution.x * torch.tensor([1.0, -2.0])).sum() + solution.objective, list(leaves.values()))
        assert all(gradient.isfinite().all() for gradient in found)


def test_the_face_of_solutions_has_the_gradient_of_its_least_norm_point():
    """On ``x + y = b`` with equal costs the least-norm solution is ``(b / 2, b / 2)``; tilting the row moves it."""
    row = torch.tensor([[1.0, 1.0]], dtype=torch.float64, requires_grad=True)
    b = torch.tensor([1.0], dtype=torch.float64, requires_grad=True)
    solution = differentiable_solve(LinearProgram(torch.zeros(2, dtype=torch.float64), A_eq=row, b_eq=b))
    assert solution.x.tolist() == pytest.approx([0.5, 0.5])
    row_gradient, b_gradient = torch.autograd.grad(solution.x[0], [row, b])
    assert b_gradient.tolist() == pytest.approx([0.5])
    # x = b a / |a|^2 has dx_1/da_1 = b (|a|^2 - 2 a_1^2) / |a|^4 = 0 and dx_1/da_2 = -2 b a_1 a_2 / |a|^4 = -1/2.
    assert row_gradient[0].tolist() == pytest.approx([0.0, -0.5], abs=1e-8)


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
@pytest.mark.parametrize("mode", ["active_set", "smoothed", "value"])
def test_sparse_and_dense_gradients_agree(layout, mode):
    data = random_program(2)
    leaf = data[1].clone().requires_grad_()
    dense = differentiable_solve(LinearProgram(data[0], leaf, *data[2:]), gradient=mode)
    (expected,) = torch.autograd.grad(dense.x.sum() if mode != "value" else dense.objective, leaf)
    sparse = (data[1].to_sparse() if layout == torch.sparse_coo else data[1].to_sparse_csr()).requires_grad_()
    solution = differentiable_solve(LinearProgram(data[0], sparse, *data[2:]), gradient=mode)
    (found,) = torch.autograd.grad(solution.x.sum() if mode != "value" else solution.objective, sparse)
    torch.testing.assert_close(found.to_dense(), expected)


@pytest.mark.parametrize("kind", ["ours", "csr"])
@pytest.mark.parametrize("mode", ["active_set", "smoothed", "unrolled", "value"])
def test_a_sparse_matrix_an_item(kind, mode):
    """The same indices in all the items, other values: as a dense batch."""
    data = random_program(5, (4,))
    data[1] = data[1] * (torch.arange(7)[:, None] % 3 != torch.arange(5) % 3)
    leaf = data[1].clone().requires_grad_()
    dense = differentiable_solve(LinearProgram(data[0], leaf, *data[2:]), gradient=mode, epsilon=0.05)
    (expected,) = torch.autograd.grad((dense.x.sum() if mode != "value" else dense.objective.sum()), leaf)
    stored = data[1][0] != 0.0
    rows, columns = stored.nonzero().T.flip(1)  # Backwards: the order of the entries is the caller's.
    values = data[1][:, rows, columns].clone().requires_grad_()
    if kind == "ours":
        matrix = SparseMatrix(rows, columns, values, (7, 5))
    else:
        values = data[1][:, stored].clone().requires_grad_()
        rows, columns = stored.nonzero().T
        start = torch.cat([torch.zeros(1, dtype=torch.int64), stored.sum(1).cumsum(0)])
        matrix = torch.sparse_csr_tensor(start.expand(4, -1), columns.expand(4, -1), values, (4, 7, 5))
    solution = differentiable_solve(LinearProgram(data[0], matrix, *data[2:]), gradient=mode, epsilon=0.05)
    torch.testing.assert_close(solution.x, dense.x)
    (found,) = torch.autograd.grad((solution.x.sum() if mode != "value" else solution.objective.sum()), values)
    torch.testing.assert_close(found, expected[:, rows, columns])


def test_gradients_of_shared_data_are_summed_over_the_batch():
    data = random_program(4)
    costs = torch.stack([data[0], data[0]])
    shared = [tensor.clone().requires_grad_() for tensor in data[1:]]
    solution = differentiable_solve(LinearProgram(costs, *shared))
    together = torch.autograd.grad(solution.x.sum(), shared)
    _, alone = value_and_gradients(lambda *d: differentiable_solve(LinearProgram(*d)).x.sum(), data)
    for found, expected in zip(together, alone[1:], strict=True):
        torch.testing.assert_close(found, 2 * expected)


def test_burn_in_unrolls_first():
    data = dict(zip(NAMES, random_program(0), strict=True))
    layer = LPLayer(burn_in=1, epsilon=0.1)
    first, second = layer(**data).x, layer(**data).x
    assert not torch.equal(first, second)
    torch.testing.assert_close(second, differentiable_solve(LinearProgram(**data)).x)
    assert int(layer.calls) == 2
    assert layer.state_dict()["calls"] == 2
    torch.testing.assert_close(LPLayer(burn_in=1).eval()(**data).x, second)


def test_float32_gradients():
    data = random_program(0)
    weight = torch.ones(5)
    leaf = data[2].float().requires_grad_()
    problem = LinearProgram(*(tensor.float() for tensor in data[:2]), leaf, *(tensor.float() for tensor in data[3:]))
    (found,) = torch.autograd.grad((differentiable_solve(problem, tolerance=1e-6).x * weight).sum(), leaf)
    _, expected = value_and_gradients(lambda *d: differentiable_solve(LinearProgram(*d)).x.sum(), data)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), expected[2], atol=1e-3, rtol=1e-3)


def test_no_solution_gives_a_status_and_no_nan():
    c = torch.ones(1, dtype=torch.float64, requires_grad=True)
    infeasible = LinearProgram(c, A_ub=torch.tensor([[1.0], [-1.0]]).double(), b_ub=torch.tensor([-1.0, -1.0]).double())
    solution = differentiable_solve(infeasible)
    assert solution.status is Status.INFEASIBLE
    (gradient,) = torch.autograd.grad(solution.objective + solution.x.sum(), c)
    assert gradient.isfinite().all()
    assert np.isfinite(solution.x.detach().numpy()).all()


@pytest.mark.parametrize("mode", ["active_set", "smoothed", "value"])
def test_a_second_derivative_meets_an_error(mode):
    """Also where it would be a silent zero beside another term."""
    data = random_program(3)
    leaf = data[2].clone().requires_grad_()
    solution = differentiable_solve(LinearProgram(data[0], data[1], leaf, *data[3:]), gradient=mode)
    output = solution.objective if mode == "value" else solution.x.sum()
    (first,) = torch.autograd.grad(output, leaf, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivative here"):
        ((first**2).sum() + (leaf**2).sum()).backward()


def test_unrolled_from_the_exact_minimizer():
    """Numbers without rounding: the Newton steps begin where they end, and still carry the gradient of the minimizer."""
    found = []
    for mode in ("unrolled", "smoothed"):
        leaves = [torch.tensor([value], dtype=torch.float64, requires_grad=True) for value in (1.0, 0.0, 2.0)]
        problem = LinearProgram(leaves[0], lower=leaves[1], upper=leaves[2])
        solution = differentiable_solve(problem, gradient=mode, epsilon=0.25)
        found.append(torch.autograd.grad(solution.x.sum(), leaves))
    assert [float(g) for g in found[1]] == pytest.approx([-0.25, 1.0, 0.0])
    assert [float(g) for g in found[0]] == pytest.approx([-0.25, 1.0, 0.0])


@pytest.mark.parametrize("mode", ["active_set", "smoothed"])
def test_the_gradient_of_a_transposed_solution(mode):
    data = random_program(2, (3,))
    weight = torch.arange(1.0, 6.0, dtype=torch.float64)
    found = []
    for function in (lambda x: (x.T * weight[:, None]).sum(), lambda x: (x * weight).sum()):
        leaf = data[2].clone().requires_grad_()
        x = differentiable_solve(LinearProgram(*data[:2], leaf, *data[3:]), gradient=mode, epsilon=0.03).x
        found.append(torch.autograd.grad(function(x), leaf)[0])
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_a_sparse_matrix_keeps_its_gradient_in_a_second_solve(layout):
    one = torch.ones(2, dtype=torch.float64)
    for _ in range(2):
        base = one[None].clone().requires_grad_()
        matrix = base.to_sparse() if layout == torch.sparse_coo else base.to_sparse_csr()
        problem = LinearProgram(one, A_eq=matrix, b_eq=one[:1], lower=0 * one)
        for _ in range(2):
            solution = differentiable_solve(problem)
        (gradient,) = torch.autograd.grad(solution.x[0], base)
        assert gradient.isfinite().all()
        assert (gradient != 0.0).any()


def test_the_layer_takes_a_program():
    """So that formulations compose with it."""
    data = random_program(5)
    leaves = [tensor.clone().requires_grad_() for tensor in data]
    layer = LPLayer()
    by_data, by_program = layer(*leaves), layer(LinearProgram(*leaves))
    assert torch.equal(by_data.x, by_program.x)
    for one, other in zip(
        *(torch.autograd.grad(s.x.sum(), leaves, allow_unused=True) for s in (by_data, by_program)), strict=True
    ):
        assert one is other is None or torch.equal(one, other)
    with pytest.raises(TypeError, match="give one or the other"):
        layer(LinearProgram(*leaves), upper=1.0)


def test_a_gradient_at_a_bound_does_not_reach_the_others():
    """x_0 stands at its bound, and the others follow from the equation."""
    results = []
    for weight in (0.0, 1e12, torch.inf):
        rhs = torch.tensor([1.0], dtype=torch.float64, requires_grad=True)
        c, row = torch.tensor([1.0, -1.0], dtype=torch.float64), torch.tensor([[1.0, 3.0]], dtype=torch.float64)
        x = differentiable_solve(LinearProgram(c, A_eq=row, b_eq=rhs, lower=0.0, upper=5.0)).x
        assert x.tolist() == pytest.approx([0.0, 1 / 3])
        (gradient,) = torch.autograd.grad(x, rhs, torch.tensor([weight, 1.0], dtype=torch.float64))
        results.append(float(gradient))
    assert results == [results[0]] * 3 == pytest.approx([1 / 3] * 3)


def test_a_refused_call_is_no_training_call():
    layer = LPLayer(burn_in=2)
    with pytest.raises(ValueError, match="columns"):
        layer(torch.ones(2), A_ub=torch.ones(1, 3), b_ub=torch.ones(1))
    assert int(layer.calls) == 0


def test_an_unknown_option_of_the_layer():
    with pytest.raises(TypeError, match="unknown option 'toleranse'; expected epsilon"):
        LPLayer(toleranse=1e-6)


def zero_in_the_costs(layer, cost, loss, calls=1):
    """The warnings of some training steps on ``x1 + x2 = 1``."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(calls):
            loss(layer(cost, A_eq=torch.ones(1, 2), b_eq=torch.ones(1), lower=0.0)).backward()
    return [str(warning.message) for warning in caught]


def test_a_zero_gradient_in_the_costs_is_said_once_with_the_cure():
    cost = torch.tensor([1.0, 2.0], requires_grad=True)
    said = zero_in_the_costs(LPLayer(), cost, lambda solution: solution.x[0] ** 2, calls=3)
    assert len(said) == 1
    assert cost.grad.tolist() == [0.0, 0.0]
    for word in ("the costs c get no gradient through x", "gradient='smoothed'", "solution.objective", "loss='regret'"):
        assert word in said[0]


def test_nothing_is_said_where_the_costs_have_a_gradient_or_want_none():
    cost = torch.tensor([1.0, 2.0], requires_grad=True)
    assert not zero_in_the_costs(LPLayer(), cost, lambda solution: solution.objective)
    assert not zero_in_the_costs(LPLayer(), cost, lambda solution: solution.objective + solution.x[0])
    assert not zero_in_the_costs(LPLayer("smoothed", ridge=0.1), cost, lambda solution: solution.x[0] ** 2)
    assert not zero_in_the_costs(LPLayer("unrolled"), cost, lambda solution: solution.x[0] ** 2)
    assert not zero_in_the_costs(LPLayer(), cost, lambda solution: 0.0 * solution.x[0])
    rhs = torch.ones(1, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        LPLayer()(torch.tensor([1.0, 2.0]), A_eq=torch.ones(1, 2), b_eq=rhs, lower=0.0).x[0].backward()
