"""Separable nonnegative matrix factorization: planted anchors, gradients, bad input."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import taskloss as tl
from taskloss.lp.formulations import nmf_program
from tests.oracles.linear_programs import Data, highs


def planted(rows: int, columns: int, rank: int, noise: float, seed: int) -> tuple[torch.Tensor, list[int]]:
    """Return a matrix whose rows are mixtures of its anchor rows, in random order, plus noise; and the anchors."""
    rng = np.random.default_rng(seed)
    anchors = rng.exponential(1.0, (rank, columns))
    shares = np.vstack([np.eye(rank), rng.dirichlet(np.ones(rank), rows - rank)])
    order = rng.permutation(rows)
    scale = rng.uniform(0.2, 5.0, (rows, 1))
    matrix = scale * (shares @ anchors + noise * rng.exponential(1.0, (rows, columns)))[order]
    return torch.from_numpy(matrix), sorted(np.flatnonzero(order < rank).tolist())


@pytest.mark.parametrize("exact", [True, False])
def test_anchors_without_noise(exact):
    for seed in range(5):
        V, anchors = planted(10, 12, 3, 0.0, seed)
        factors = tl.lp.nmf(V, 3, exact=exact)
        assert sorted(factors.anchors.tolist()) == anchors
        assert torch.equal(factors.W, V[factors.anchors])
        assert (factors.F >= 0).all()
        np.testing.assert_allclose(factors.F @ factors.W, V, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(factors.weights[factors.anchors], 1.0, atol=1e-6)


@pytest.mark.parametrize("noise", [0.01, 0.05])
def test_anchors_with_noise(noise):
    for seed in range(5):
        V, anchors = planted(24, 30, 4, noise, seed)
        factors = tl.lp.nmf(V, 4)
        assert sorted(factors.anchors.tolist()) == anchors, seed
        assert ((factors.F @ factors.W - V).norm() / V.norm()).item() < 3 * noise


def test_noise_makes_the_exact_program_infeasible():
    with pytest.raises(ValueError, match="infeasible"):
        tl.lp.nmf(planted(8, 10, 2, 0.05, 0)[0], 2, exact=True)


def test_the_program_by_highs():
    for exact, noise in ((True, 0.0), (False, 0.05)):
        V, _ = planted(7, 6, 2, noise, 1)
        program = nmf_program(V / V.sum(1, keepdim=True), 2, exact=exact)
        arrays = (program.c, program.A_ub, program.b_ub, program.A_eq, program.b_eq, program.lower, program.upper)
        dense = (array.to_dense() if isinstance(array, tl.lp.SparseMatrix) else array for array in arrays)
        status, value = highs(Data(*(array.numpy() for array in dense)))
        assert status == "OPTIMAL"
        assert tl.lp.solve(program).objective.item() == pytest.approx(value, abs=1e-8)


def test_column_generation_solves_the_program_of_all_rows():
    for seed in range(3):
        matrix = torch.from_numpy(np.random.default_rng(seed).exponential(1.0, (30, 8)))
        program = nmf_program(matrix / matrix.sum(1, keepdim=True), 3)
        weights = tl.lp.solve(program).x[: 30 * 30 : 31]
        np.testing.assert_allclose(tl.lp.nmf(matrix, 3).weights, weights, atol=1e-3)


def test_gradient_by_finite_differences():
    V, _ = planted(8, 7, 2, 0.03, 2)
    weight = torch.from_numpy(np.random.default_rng(0).standard_normal((8, 2)))

    def loss(matrix):
        factors = tl.lp.nmf(matrix, 2)
        return (factors.F * weight).sum() + factors.W.square().sum()

    V.requires_grad_()
    (gradient,) = torch.autograd.grad(loss(V), V)
    for seed in range(5):
        direction = torch.from_numpy(np.random.default_rng(seed).standard_normal(V.shape))
        with torch.no_grad():
            ends = [loss(V + sign * 1e-6 * direction).item() for sign in (1, -1)]
        assert (gradient * direction).sum().item() == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-4, abs=1e-5)


def test_rows_of_zeros_take_no_part():
    V, anchors = planted(6, 8, 2, 0.0, 3)
    padded = torch.cat([V.float(), torch.zeros(2, 8)])
    factors = tl.lp.nmf(padded, 2)
    assert sorted(factors.anchors.tolist()) == anchors
    assert factors.F.dtype == torch.float32
    assert (factors.F[6:] == 0).all()
    assert (factors.weights[6:] == 0).all()


@pytest.mark.parametrize(
    ("V", "rank", "message"),
    [
        (-torch.ones(2, 2), 1, "not negative"),
        (torch.ones(2, 2), 3, "rank"),
        (torch.zeros(2, 2), 1, "not all zero"),
        (torch.ones(2), 1, "expected a floating-point matrix"),
        (torch.ones(2, 2), 0, "at least 1"),
    ],
)
def test_bad_input(V, rank, message):
    with pytest.raises(ValueError, match=message):
        tl.lp.nmf(V, rank)
