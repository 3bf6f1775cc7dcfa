"""Paths through grids: the best of all paths, larger grids, and input that makes no sense."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import taskloss as tl
from tests.oracles import structures


@given(seed=st.integers(0, 10_000), neighbours=st.sampled_from([4, 8]), ends=st.permutations(range(9)))
def test_paths_between_any_two_vertices(seed, neighbours, ends):
    costs = np.random.default_rng(seed).integers(0, 4, (3, 3)) / 2.0
    start, end = divmod(ends[0], 3), divmod(ends[1], 3)
    psi = tl.solvers.GridShortestPath(neighbours=neighbours, start=start, end=end)(-costs)
    known = structures.all_paths((3, 3), neighbours, start, end)
    assert (known == psi.reshape(-1)).all(axis=1).any()
    assert (psi * costs).sum() == (known @ costs.reshape(-1)).min()


def test_the_path_of_one_vertex():
    psi = tl.solvers.GridShortestPath(start=(1, 1), end=(1, 1))(-np.ones((3, 3)))
    assert psi.sum() == psi[1, 1] == 1


@pytest.mark.parametrize("neighbours", [4, 8])
def test_large_grids_equal_scipy(neighbours):
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import dijkstra

    rng = np.random.default_rng(0)
    height, width = 40, 57
    costs = rng.random((height, width)) + 0.01
    number = np.arange(height * width, dtype=np.int32).reshape(height, width)
    sources, ends = [], []
    for di, dj in [(0, 1), (1, 0), *([(1, 1), (1, -1)] if neighbours == 8 else [])]:
        a = number[: height - di, max(0, -dj) : width - max(0, dj)]
        b = number[di:, max(0, dj) : width + min(0, dj)]
        sources += [a.ravel(), b.ravel()]
        ends += [b.ravel(), a.ravel()]
    source, end = np.concatenate(sources), np.concatenate(ends)
    graph = coo_array((costs.reshape(-1)[end], (source, end))).tocsr()
    expected = dijkstra(graph, indices=0)[-1] + costs[0, 0]
    psi = tl.solvers.GridShortestPath(neighbours=neighbours)(-costs)
    assert (psi * costs).sum() == pytest.approx(expected, rel=1e-12)


def test_negative_costs():
    scores = np.array([[-1.0, 0.5], [-3.0, -1.0]])
    with pytest.raises(ValueError, match=r"the cost at \[0, 0, 1\] is -0.5: shortest paths need.*softplus.*MonotoneGridPath"):
        tl.solvers.GridShortestPath(neighbours=4)(scores)
    psi = tl.solvers.GridShortestPath(neighbours=4, negative_costs="clip")(scores)
    np.testing.assert_array_equal(psi, [[1, 1], [0, 1]])


def test_rounded_zeros_are_no_negative_costs():
    epsilon = 0.7
    scores = -torch.full((1, 2, 2), epsilon)
    assert epsilon > scores.abs().double().max(), "float32 rounds down"
    target = torch.eye(2)[None]
    for update in ("positive", "negative"):
        criterion = tl.DirectLoss(tl.Structured(tl.solvers.GridShortestPath()), epsilon=epsilon, update=update)
        assert criterion(scores.requires_grad_(), target).item() == 0.0


def test_how_high_predicted_costs_have_to_be():
    """As docs/structured.md says: epsilon times the true costs, half of them for SPO+; zero for the negative update."""
    true, solver = torch.tensor([[[1.0, 4.0], [2.0, 1.0]]]), tl.solvers.GridShortestPath()
    task = tl.Structured(solver, loss="regret")
    for criterion, sign, lowest in (
        (tl.DirectLoss(task, epsilon=3.0), -1, 3 * true),
        (tl.DirectLoss(task, epsilon=3.0, update="negative"), -1, 0 * true),
        (tl.decisions.SPOPlusLoss(solver), 1, true / 2),
    ):
        criterion((sign * lowest).requires_grad_(), true)
        with pytest.raises(ValueError, match="half of the true costs"):
            criterion((sign * (lowest - 0.01)).requires_grad_(), true)


def test_clipped_costs_need_on_worse_ignore():
    """Both scores above 0 become costs of 0, so the same path is taken in both instances, whose best paths are different."""
    solver = tl.solvers.GridShortestPath(neighbours=4, negative_costs="clip")
    scores = torch.tensor([[[-1.0, 2.0], [1.0, -1.0]], [[-1.0, 1.0], [2.0, -1.0]]])
    with pytest.raises(ValueError, match="as negative_costs='clip' is"):
        tl.DirectLoss(tl.Structured(solver, loss="regret"))(scores, 2 - scores)
    assert tl.DirectLoss(tl.Structured(solver, loss="regret", on_worse="ignore"))(scores, 2 - scores) == 0.5


def test_settings_that_make_no_sense():
    with pytest.raises(ValueError, match="neighbours must be 4 or 8, got 6"):
        tl.solvers.GridShortestPath(neighbours=6)
    with pytest.raises(ValueError, match="negative_costs='drop'"):
        tl.solvers.GridShortestPath(negative_costs="drop")
    with pytest.raises(ValueError, match=r"end=\(3, 0\) is no vertex of a grid of 2 x 2"):
        tl.solvers.GridShortestPath(end=(3, 0))(-np.ones((2, 2)))


def test_another_grid_does_not_make_a_negative_cost_small():
    scores = -np.ones((2, 2, 2))
    scores[0] *= 1e-6
    scores[0, 0, 1] = 1e-8
    with pytest.raises(ValueError, match=r"the cost at \[0, 0, 1\] is -1e-08"):
        tl.solvers.GridShortestPath()(scores)
