"""Learn the costs of a shortest path: a network predicts them, a linear program decides, the loss is the true cost of its path.

    python examples/path_costs.py

A traveller crosses a grid from corner to corner, moving right or down at each crossing. The costs of the edges are unknown at the
time of the decision, but eight features of each edge are known, and the cost depends on them nonlinearly. The shortest path is a
linear program: one unit of flow, with equal inflow and outflow at every crossing. Its solution is a vertex, which does not move
under a small change of the costs, so the exact gradient is zero. ``gradient="smoothed"`` adds a ridge to the program, and the
solution of that does move. Its epsilon is small: with soft constraints, the network would learn to lose some of the flow. All the
paths of a step are solved in one call.
"""

from __future__ import annotations

import argparse
import time

import torch
from torch import nn

from taskloss.lp import LPLayer

FEATURES = 8


def grid_program(side: int) -> dict[str, object]:
    """Return the constraints of one unit of flow through a ``side`` x ``side`` grid, corner to corner; one variable per edge."""
    number = torch.arange(side * side).reshape(side, side)
    right = torch.stack([number[:, :-1].flatten(), number[:, 1:].flatten()])
    down = torch.stack([number[:-1].flatten(), number[1:].flatten()])
    start, end = torch.cat([right, down], 1)
    edges = torch.arange(len(start))
    flow = torch.zeros(side * side, len(start), dtype=torch.float64)
    flow[start, edges] = 1.0
    flow[end, edges] = -1.0
    supply = torch.zeros(side * side, dtype=torch.float64)
    supply[0], supply[-1] = 1.0, -1.0
    # The equation of the last crossing follows from the others.
    return {"A_eq": flow[:-1].to_sparse(), "b_eq": supply[:-1], "lower": 0.0, "upper": 1.0}


def make_days(days: int, edges: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Return features ``(days, edges, 8)`` and the costs ``(days, edges)`` that depend on them."""
    features = torch.randn(days, edges, FEATURES, generator=generator, dtype=torch.float64)
    slope = features[..., 0] + features[..., 1] * features[..., 2]
    return features, 0.5 + nn.functional.softplus(slope) + 0.5 * features[..., 3].abs()


class CostNet(nn.Module):
    """One small network that is applied to every edge and predicts its cost.

    The costs are positive and have mean one. Their scale does not change any path, and without the constraint the network would
    learn to make all of them large, where the ridge matters less and the gradient vanishes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(FEATURES, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 1)).double()

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        costs = nn.functional.softplus(self.layers(features)[..., 0])
        return costs / costs.mean(-1, keepdim=True)


@torch.no_grad()
def excess(net: CostNet, features: torch.Tensor, costs: torch.Tensor, program: dict[str, object]) -> float:
    """Return the total true cost of the paths that the predicted costs lead to, relative to the cheapest paths, minus one."""
    exact = LPLayer(gradient="value")
    chosen, best = exact(net(features), **program).check().x, exact(costs, **program).check().x
    return float((costs * chosen).sum() / (costs * best).sum() - 1.0)


def gradient_in_costs(
    layer: LPLayer, features: torch.Tensor, costs: torch.Tensor, program: dict[str, object], net: CostNet
) -> float:
    """Return the largest entry of the gradient of the decisions' true cost with respect to the predicted costs."""
    predicted = net(features).detach().requires_grad_()
    (costs * layer(predicted, **program).x).sum().backward()
    return float(predicted.grad.abs().max())


def main() -> None:
    """Train, and print the excess cost on days that were not used for training."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", type=int, default=6, help="crossings along a side of the grid")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=32, help="paths per step")
    parser.add_argument("--days", type=int, default=1000, help="days to train on")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    program = grid_program(arguments.side)
    edges = 2 * arguments.side * (arguments.side - 1)
    features, costs = make_days(arguments.days, edges, generator)
    test_features, test_costs = make_days(200, edges, generator)
    net = CostNet()
    layer = LPLayer(gradient="smoothed", epsilon=1e-4, ridge=0.5)

    first_days = features[:8], costs[:8]
    print(f"gradient in the costs, active_set: {gradient_in_costs(LPLayer(gradient='active_set'), *first_days, program, net):g}")
    print(f"gradient in the costs, smoothed:   {gradient_in_costs(layer, *first_days, program, net):.3g}")
    print(f"step   0: held-out paths cost {100 * excess(net, test_features, test_costs, program):.2f}% more than the best")
    optimizer = torch.optim.AdamW(net.parameters(), lr=5e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, arguments.steps)
    start = time.perf_counter()
    for step in range(1, arguments.steps + 1):
        batch = torch.randint(len(features), (arguments.batch,), generator=generator)
        optimizer.zero_grad()
        flow = layer(net(features[batch]), **program).x
        (costs[batch] * flow).sum(-1).mean().backward()
        optimizer.step()
        schedule.step()
        if step % max(arguments.steps // 6, 1) == 0:
            percent = 100 * excess(net, test_features, test_costs, program)
            seconds = time.perf_counter() - start
            print(f"step {step:>3}: held-out paths cost {percent:.2f}% more than the best ({seconds:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
