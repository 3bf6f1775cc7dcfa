"""Shortest paths on graphs against all simple paths, and against linear programs on larger ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from taskloss.solvers import ShortestPath, grid_edges
from tests.oracles.decisions import all_edge_paths, assert_best


@given(seed=st.integers(0, 10_000), ties=st.booleans())
def test_acyclic_graphs_with_scores_of_any_sign(seed, ties):
    rng = np.random.default_rng(seed)
    names = rng.permutation(6)
    pairs = [(i, j) for i in range(6) for j in range(i + 1, 6) if rng.random() < 0.6]
    # A path that always exists, and parallel edges.
    edges = names[np.array([*pairs, (0, 3), (3, 5), (0, 3)])]
    scores = rng.integers(-2, 3, (4, len(edges))) / 2.0 if ties else rng.standard_normal((4, len(edges)))
    solver = ShortestPath(edges, start=int(names[0]), end=int(names[5]))
    assert solver.acyclic
    assert_best(solver(scores), scores, all_edge_paths(edges, names[0], names[5]))


@given(seed=st.integers(0, 10_000), directed=st.booleans())
def test_graphs_with_cycles(seed, directed):
    rng = np.random.default_rng(seed)
    edges = np.concatenate([rng.integers(0, 5, (9, 2)), [(0, 1), (1, 2), (2, 1), (2, 4)]])
    costs = rng.integers(0, 4, (4, len(edges))) / 2.0
    solver = ShortestPath(edges, end=4, directed=directed)
    assert not solver.acyclic
    assert_best(solver(-costs), -costs, all_edge_paths(edges, 0, 4, directed))


def test_a_grid_by_hand():
    #  0 -1- 1 -9- 2
    #  |5    |1    |1
    #  3 -1- 4 -2- 5
    solver = ShortestPath(grid_edges(2, 3))
    assert solver.edges.tolist() == [[0, 1], [1, 2], [0, 3], [1, 4], [2, 5], [3, 4], [4, 5]]
    psi = solver(-np.array([1.0, 9.0, 5.0, 1.0, 1.0, 1.0, 2.0]))
    assert psi.tolist() == [1, 0, 0, 1, 0, 0, 1]
    # A bonus of 20 on the edge from 3 to 4 makes the detour worth its while.
    assert solver(-np.array([1.0, 9.0, 5.0, 1.0, 1.0, -20.0, 2.0])).tolist() == [0, 0, 1, 0, 0, 1, 1]


@pytest.mark.parametrize("directed", [True, False])
def test_larger_grids_equal_highs(directed):
    rng = np.random.default_rng(0)
    edges = grid_edges(12, 9)
    costs = rng.random((3, len(edges)))
    arcs = edges if directed else np.concatenate([edges, edges[:, ::-1]])
    flow = np.zeros((12 * 9, len(arcs)))
    flow[arcs[:, 0], np.arange(len(arcs))] = 1.0
    flow[arcs[:, 1], np.arange(len(arcs))] -= 1.0
    supply = np.zeros(12 * 9)
    supply[0], supply[-1] = 1.0, -1.0
    psi = ShortestPath(edges, directed=directed)(-costs)
    for one, row in zip(psi, costs, strict=True):
        best = linprog(np.tile(row, len(arcs) // len(edges)), A_eq=flow, b_eq=supply, bounds=(0, None)).fun
        assert one @ row == pytest.approx(best, abs=1e-9)


def test_what_no_path_can_use_does_not_matter():
    # The cycle 3 -> 4 -> 3 cannot be part of a path from 0 to 2, nor can edges into the start.
    solver = ShortestPath([(0, 1), (1, 2), (3, 4), (4, 3), (1, 0), (0, 3)], end=2)
    assert solver.acyclic
    assert solver(np.array([-1.0, 1.0, 9.0, 9.0, 9.0, 9.0])).tolist() == [1, 1, 0, 0, 0, 0]


def test_negative_costs():
    edges = [(0, 1), (1, 2), (2, 1), (0, 2), (2, 3), (1, 3)]
    with pytest.raises(ValueError, match=r"the cost at \[1, 2\] is -0.5: in a graph with cycles.*softplus.*cycles"):
        ShortestPath(edges)(-np.array([[1.0] * 6, [1.0, 1.0, -0.5, 1.0, 1.0, 1.0]]))
    clipped = ShortestPath(edges, negative_costs="clip")(-np.array([1.0, 1.0, -0.5, 1.0, 0.5, 1.0]))
    assert clipped.tolist() == [0, 0, 0, 1, 1, 0]
    # Zeros that were rounded are no negative costs.
    ShortestPath(edges)(-np.array([1.0, 1.0, -1e-8, 1.0, 1.0, 1.0]))


def test_settings_that_make_no_sense():
    with pytest.raises(ValueError, match=r"edges has shape \(3,\); expected one pair"):
        ShortestPath([0, 1, 2])
    with pytest.raises(TypeError, match="edges must be integers, got float64"):
        ShortestPath([(0.0, 1.0)])
    with pytest.raises(ValueError, match=r"edges\[0, 1\] is -1; expected vertices numbered from 0"):
        ShortestPath([(0, -1)])
    with pytest.raises(ValueError, match="end=5 is no vertex of this graph; its edges name the vertices 0 to 1"):
        ShortestPath([(0, 1)], end=5)
    with pytest.raises(ValueError, match="start and end are both vertex 1"):
        ShortestPath([(0, 1)], start=1)
    with pytest.raises(ValueError, match="no path leads from vertex 0 to vertex 2.*directed=False"):
        ShortestPath([(0, 1), (2, 1)])
    assert ShortestPath([(0, 1), (2, 1)], directed=False)(np.zeros(2)).tolist() == [1, 1]
    with pytest.raises(ValueError, match=r"scores has shape \(3,\); expected 1 along the last axis, one score per edge"):
        ShortestPath([(0, 1)])(np.zeros(3))
    with pytest.raises(ValueError, match="negative_costs='drop'"):
        ShortestPath([(0, 1)], negative_costs="drop")
