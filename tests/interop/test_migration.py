"""The code for users of PyEPO and cvxpylayers in docs/decisions.md: both forms, before and after, are the same."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest
import torch

import taskloss as tl
from taskloss import decisions

PAGE = (Path(__file__).parents[2] / "docs/decisions.md").read_text()


def before(heading: str) -> str:
    """Return the first indented block after a heading of the page."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return textwrap.dedent(re.search(r"\n\n((?:(?:    .*)?\n)+)", section)[1])


def test_pyepo():
    pyepo = pytest.importorskip("pyepo", reason="PyEPO is not installed: pip install 'taskloss[peers]'")
    from taskloss.interop.pyepo import TasklossModel

    solver = tl.solvers.ShortestPath(tl.solvers.grid_edges(5, 5))
    licensed = "pyepo.model.grb.shortestPathModel((5, 5))"
    code = before("Coming from PyEPO")
    assert licensed in code
    features, costs = pyepo.data.shortestpath.genData(64, 5, (5, 5), deg=4, noise_width=0.5, seed=0)
    network = torch.nn.Linear(5, 40)
    names = {"pyepo": pyepo, "features": features, "costs": costs, "network": network}
    names["model"] = TasklossModel(solver, shape=40)
    exec(code.replace(licensed, "model"), names)
    (theirs,) = torch.autograd.grad(names["loss"], network.weight)
    loss = decisions.SPOPlusLoss(solver, batched=True)(network(names["x"]), names["c"])
    (ours,) = torch.autograd.grad(loss, network.weight)
    torch.testing.assert_close(loss, names["loss"])
    torch.testing.assert_close(ours, theirs)
    regret = tl.DirectLoss(tl.Structured(solver, loss="regret", batched=True))(-network(names["data"].feats), names["data"].costs)
    expected = pyepo.metric.regret(network, names["model"], torch.utils.data.DataLoader(names["data"], 64), reduction="mean")
    assert regret.item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.filterwarnings("ignore")  # cvxpylayers and cvxpy have warnings of their own.
def test_cvxpylayers():
    cp = pytest.importorskip("cvxpy", reason="cvxpy comes with taskloss[peers]")
    layers = pytest.importorskip("cvxpylayers.torch", reason="cvxpylayers comes with taskloss[peers]")
    A, b = torch.tensor([[1.0, 1.0, 0.0], [-1.0, 0.0, 1.0]]).double(), torch.tensor([1.0, 0.0]).double()
    predicted = torch.tensor([[1.0, 3.0, 1.0], [1.0, 1.5, 1.0]]).double().requires_grad_()
    true = torch.tensor([[1.0, 1.0, 1.0], [1.0, 2.0, 3.0]]).double()
    names = {"cp": cp, "CvxpyLayer": layers.CvxpyLayer, "A": A.numpy(), "b": b.numpy(), "predicted": predicted, "true": true}
    exec(before("Coming from cvxpylayers"), names)
    layer = tl.lp.LPLayer(gradient="smoothed", ridge=1.0, epsilon=1e-4)
    flow = layer(predicted, A_eq=A, b_eq=b, lower=0.0, upper=1.0).x
    (ours,) = torch.autograd.grad((true * flow).sum(-1).mean(), predicted)
    (theirs,) = torch.autograd.grad(names["loss"], predicted)
    torch.testing.assert_close(flow, names["flow"], rtol=0, atol=5e-3)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-3)
