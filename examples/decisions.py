"""Learn costs for decisions by four losses: the same network, the same data, and what the routes cost that it leads to.

    python examples/decisions.py

Every day a driver crosses a 5 x 5 grid of streets from corner to corner, to the right or down at each crossing. What the streets
will cost is unknown in the morning; eight numbers are known (weather, day of the week ...). A linear model predicts the costs
from them, and the cheapest route for the predicted costs is driven. The true costs depend on the numbers nonlinearly, so the
model cannot be right everywhere. The losses differ in where it is wrong:

- squared error of the costs: it knows no routes, and learns most about the most expensive streets, which nobody takes;
- SPO+ (``taskloss.decisions``): a convex upper bound of the regret, the cost of a route in excess of the best one;
- the smoothed linear program (``taskloss.lp``): the cost of its flow, with the exact gradient of that. The solution of a linear
  program is a vertex, which does not move under a small change of the costs; with a ridge it does, and so it has a gradient;
- the direct loss (``taskloss.DirectLoss``): the regret itself. Its gradient compares the routes for two changes of the costs.

SPO+ and the direct loss need a solver of routes and nothing else: here dynamic programming on the graph. The linear program needs
its constraints: one unit of flow, as much into every crossing as out of it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

import taskloss as tl
from taskloss import decisions
from taskloss.lp import LPLayer

FEATURES, SIDE = 8, 5
EDGES = tl.solvers.grid_edges(SIDE, SIDE)
SOLVER = tl.solvers.ShortestPath(EDGES)

Loss = Callable[[Tensor, Tensor], Tensor]
"""From predicted and true costs, both ``(days, edges)``, to a number."""


def make_days(days: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return what is known in the morning, ``(days, 8)``, and the costs of the streets in the evening, ``(days, 40)``."""
    rng = np.random.default_rng(seed)
    mixing = np.random.default_rng(0).binomial(1, 0.5, (FEATURES, len(EDGES)))
    known = rng.standard_normal((days, FEATURES))
    costs = 1 + (known @ mixing / np.sqrt(FEATURES) + 3) ** 6 / 3**6
    return torch.tensor(known), torch.tensor(costs * rng.uniform(0.75, 1.25, costs.shape))


def flow_constraints() -> dict[str, object]:
    """Return the constraints of one unit of flow from corner to corner, one variable per street."""
    start, end = torch.tensor(EDGES).T
    streets = torch.arange(len(EDGES))
    flow = torch.zeros(SIDE * SIDE, len(EDGES), dtype=torch.float64)
    flow[start, streets] = 1.0
    flow[end, streets] = -1.0
    supply = torch.zeros(SIDE * SIDE, dtype=torch.float64)
    supply[0], supply[-1] = 1.0, -1.0
    # The equation of the last crossing follows from the others.
    return {"A_eq": flow[:-1].to_sparse(), "b_eq": supply[:-1], "lower": 0.0, "upper": 1.0}


def make_losses() -> dict[str, Loss]:
    """Return the four losses."""
    spo_plus = decisions.SPOPlusLoss(SOLVER, batched=True)
    direct = tl.DirectLoss(tl.Structured(SOLVER, loss="regret", batched=True), epsilon=1.0)
    program, layer = flow_constraints(), LPLayer(gradient="smoothed", epsilon=1e-4, ridge=1.0)
    return {
        "squared error": nn.functional.mse_loss,
        "SPO+": spo_plus,
        "smoothed linear program": lambda predicted, costs: (costs * layer(predicted, **program).x).sum(-1).mean(),
        "direct loss": lambda predicted, costs: direct(-predicted, costs),
    }


@torch.no_grad()
def excess(network: nn.Module, known: Tensor, costs: Tensor) -> float:
    """Return the cost of the routes for predicted costs in excess of the best routes, in percent."""
    driven, best = (torch.tensor(SOLVER(-values.numpy())) for values in (network(known), costs))
    return float(100 * ((costs * driven).sum() / (costs * best).sum() - 1))


def train(loss: Loss, known: Tensor, costs: Tensor, epochs: int) -> nn.Module:
    """Return a linear model of the costs."""
    torch.manual_seed(0)
    network = nn.Linear(FEATURES, len(EDGES)).double()
    optimizer = torch.optim.Adam(network.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    for _ in range(epochs):
        for days in torch.randperm(len(known)).split(50):
            optimizer.zero_grad()
            loss(network(known[days]), costs[days]).backward()
            optimizer.step()
        schedule.step()
    return network


def main() -> None:
    """Train once with each loss; print how much its routes cost on new days."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--days", type=int, default=1000, help="days to train on")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    known, costs = make_days(arguments.days, seed=1)
    new_days = make_days(1000, seed=2)
    for name, loss in make_losses().items():
        start = time.perf_counter()
        network = train(loss, known, costs, arguments.epochs)
        percent, seconds = excess(network, *new_days), time.perf_counter() - start
        print(f"{name:<24} routes of new days cost {percent:5.2f}% more than the best ({seconds:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
