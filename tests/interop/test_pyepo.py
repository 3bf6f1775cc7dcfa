"""The optModel for PyEPO: decisions against HiGHS, and its losses, data sets and metrics on top of it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.optimize
import torch
from torch.utils.data import DataLoader

import taskloss as tl
from taskloss.interop import pyepo as ours
from taskloss.interop.pyepo import TasklossModel
from taskloss.lp import LinearProgram, SparseMatrix

pyepo = pytest.importorskip("pyepo", reason="PyEPO is not installed: pip install 'taskloss[peers]'")

WEIGHTS = np.array([[3.0, 4.0, 3.0, 6.0, 4.0], [4.0, 5.0, 2.0, 3.0, 5.0]])
CAPACITY = np.array([10.0, 9.0])


def knapsack_program() -> LinearProgram:
    """Return the linear relaxation."""
    rows, columns = np.nonzero(WEIGHTS)
    matrix = SparseMatrix(rows, columns, torch.as_tensor(WEIGHTS[rows, columns]), WEIGHTS.shape)
    return LinearProgram(torch.zeros(5).double(), A_ub=matrix, b_ub=torch.as_tensor(CAPACITY), lower=0.0, upper=1.0)


def knapsack(values: np.ndarray) -> np.ndarray:
    """Return the best whole items, by enumeration."""
    feasible = [bits for bits in itertools.product((0.0, 1.0), repeat=5) if (WEIGHTS @ bits <= CAPACITY).all()]
    return np.array(max(feasible, key=lambda bits: values @ bits))


def test_by_hand():
    model = TasklossModel(knapsack, shape=5, sense="maximize")
    model.setObj([1.0, 1.0, 9.0, 1.0, 5.0])
    decision, value = model.solve()
    assert decision.tolist() == [0.0, 0.0, 1.0, 0.0, 1.0]
    assert (value, model.num_cost, model.modelSense) == (14.0, 5, pyepo.EPO.MAXIMIZE)
    path = TasklossModel(tl.solvers.GridShortestPath(neighbours=4), shape=(2, 2))
    path.setObj(torch.tensor([1.0, 5.0, 2.0, 1.0]))
    assert path.num_cost == 4
    assert path.solve()[0].tolist() == [1.0, 0.0, 1.0, 1.0]
    assert path.solve()[1] == 4.0


@pytest.mark.parametrize("sense", ["minimize", "maximize"])
def test_programs_against_highs(sense):
    rng, sign = np.random.default_rng(0), 1.0 if sense == "minimize" else -1.0
    model = TasklossModel(knapsack_program(), sense=sense)
    cut = model.addConstr(np.ones(5), 1.5)
    assert model.relax() is model
    for costs in rng.normal(size=(5, 5)):
        for one, rows, bounds in ((model, WEIGHTS, CAPACITY), (cut, [*WEIGHTS, np.ones(5)], [*CAPACITY, 1.5])):
            one.setObj(costs)
            expected = scipy.optimize.linprog(sign * costs, rows, bounds, bounds=(0.0, 1.0))
            decision, value = one.solve()
            np.testing.assert_allclose(decision, expected.x, atol=1e-8)
            assert value == pytest.approx(sign * expected.fun)


def test_the_losses_of_pyepo():
    rng = np.random.default_rng(0)
    features, values = rng.normal(size=(12, 3)).astype(np.float32), rng.uniform(1.0, 5.0, (12, 5)).astype(np.float32)
    model = TasklossModel(knapsack, shape=5, sense="maximize")
    data = pyepo.data.dataset.optDataset(model, features, values)
    np.testing.assert_array_equal(data.sols, [knapsack(row) for row in values])
    net = torch.nn.Linear(3, 5)
    losses = {"spo": pyepo.func.SPOPlus(model), "pfy": pyepo.func.perturbedFenchelYoung(model, n_samples=2)}
    for x, c, w, z in DataLoader(data, 12):
        predicted = net(x)
        for name, given in (("spo", (predicted, c, w, z)), ("pfy", (predicted, w))):
            (gradient,) = torch.autograd.grad(losses[name](*given), predicted, retain_graph=True)
            assert gradient.isfinite().all()
            assert gradient.any()
        # SPO+ by its definition, for a maximum: the gradient is 2 (w(2 pred - c) - w) / batch.
        (gradient,) = torch.autograd.grad(losses["spo"](predicted, c, w, z), predicted)
        answers = np.array([knapsack(row) for row in (2.0 * predicted - c).detach().double().numpy()])
        np.testing.assert_allclose(gradient, 2.0 * (answers - w.numpy()) / 12, atol=1e-6)
    regret = pyepo.metric.regret(net, model, DataLoader(data, 12))
    chosen = np.array([knapsack(row) for row in net(data.feats).detach().double().numpy()])
    best = (data.sols * data.costs).sum().item()
    assert regret == pytest.approx((best - (chosen * values).sum()) / best, rel=1e-4)


def test_unambiguous_regret_needs_constraints():
    relaxed = TasklossModel(knapsack_program(), sense="maximize")
    values = np.array([2.0, 1.0, 9.0, 1.5, 5.0])
    relaxed.setObj(values)
    best = relaxed.solve()[1]
    assert pyepo.metric.unambregret.calUnambRegret(relaxed, values, values, best) == pytest.approx(0.0, abs=1e-3)
    assert pyepo.metric.unambregret.calUnambRegret(relaxed, -values, values, best) == pytest.approx(best, abs=1e-3)
    with pytest.raises(NotImplementedError, match="give the problem as a LinearProgram"):
        TasklossModel(knapsack, shape=5).addConstr(np.ones(5), 1.0)
    with pytest.raises(NotImplementedError, match="does not know its relaxation"):
        TasklossModel(knapsack, shape=5).relax()


def test_a_model_can_be_rebuilt_and_copied():
    costs = np.array([-2.0, -1.0, -9.0, -1.5, -5.0])
    for model in (TasklossModel(knapsack_program()), TasklossModel(tl.solvers.TopK(2), shape=5)):
        model.setObj(costs)
        for other in (model.rebuild(), model.copy()):
            other.setObj(costs)
            np.testing.assert_array_equal(other.solve()[0], model.solve()[0])


def test_wrong_use():
    batch = LinearProgram(torch.zeros(2, 3).double(), lower=0.0)
    infeasible = LinearProgram(torch.ones(1), A_ub=torch.tensor([[1.0], [-1.0]]), b_ub=torch.tensor([1.0, -2.0]))
    with pytest.raises(ValueError, match="a batch of 2 programs was given"):
        TasklossModel(batch)
    with pytest.raises(ValueError, match="shape=5 was given with a LinearProgram"):
        TasklossModel(knapsack_program(), shape=5)
    with pytest.raises(ValueError, match="shape=None; expected the shape of the scores"):
        TasklossModel(knapsack)
    with pytest.raises(ValueError, match="sense='max' is not known"):
        TasklossModel(knapsack, shape=5, sense="max")
    with pytest.raises(TypeError, match="problem must be a function of the scores"):
        TasklossModel(3.0, shape=5)
    model = TasklossModel(infeasible)
    with pytest.raises(ValueError, match="call setObj"):
        model.solve()
    with pytest.raises(ValueError, match=r"expected one cost per variable, \(1,\)"):
        model.setObj([1.0, 2.0])
    with pytest.raises(ValueError, match=r"coefs has shape \(2,\); expected one coefficient per variable, \(1,\)"):
        model.addConstr([1.0, 2.0], 1.0)
    model.setObj([1.0])
    with pytest.raises(ValueError, match="is infeasible"):
        model.solve()


def test_without_pyepo(monkeypatch):
    monkeypatch.setattr(ours, "_OptModel", object)
    with pytest.raises(ImportError, match=r"pip install 'taskloss\[peers\]'"):
        TasklossModel(knapsack, shape=5)
