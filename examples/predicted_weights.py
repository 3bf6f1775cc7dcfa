"""Learn the weights of a knapsack: a network predicts them, a plan is made, and load above the capacity is paid for.

    python examples/predicted_weights.py

Every day there are 20 jobs with known values and a machine with a known number of hours. How long the jobs take is not known
when the plan is made; it depends on five features of the day, by a polynomial of degree four, and on chance: half of the jobs
are hard to foresee. Hours above the capacity are paid for as overtime. A linear network predicts the durations; its mean squared
error says nothing about what the plans are worth.

The table compares the regret after recourse on held-out days: how much less the plans are worth, overtime paid, than those that
would have been made with the true durations, in percent; and the mean predicted duration relative to the true one.

- *squared error*: the network is fitted to the durations. All others start from this one.
- *with a safety factor*: its predictions times a factor that is best on validation days.
- *LP layer*: jobs may be split; the gradient of the worth of the fractional plan passes through the constraint by the active set.
- *direct loss*: the gradient of the expected regret of the plans themselves, by ``PricedKnapsack``.
"""

from __future__ import annotations

import argparse
import copy
import statistics
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

import taskloss as tl
from taskloss.lp import LPLayer

JOBS, FEATURES, HOURS, OVERTIME = 20, 5, 5.0, 3.0
TASK = tl.PricedKnapsack(price=OVERTIME)
FIRST_SEED = 100  # Steps, rate and epsilon were chosen with the seeds 0, 1 and 2.


class Days(NamedTuple):
    """Features ``(days, 5)``, and the values and true durations of the jobs, ``(days, jobs)``."""

    features: Tensor
    values: Tensor
    durations: Tensor

    def pack(self, durations: Tensor) -> Tensor:
        """Return the knapsacks with these durations."""
        return TASK.pack(self.values, durations[:, None], torch.full((len(durations), 1), HOURS, dtype=torch.float64))


Loss = Callable[[Tensor, Days], Tensor]


def make_days(days: int, slopes: Tensor, generator: torch.Generator) -> Days:
    """Return days whose durations depend on ``slopes (jobs, 5)``."""
    features = torch.randn(days, FEATURES, generator=generator, dtype=torch.float64)
    chance = 2.0 * torch.rand(days, JOBS, generator=generator, dtype=torch.float64) - 1.0
    spread = torch.where(torch.arange(JOBS) % 2 == 0, 0.1, 0.9)
    durations = ((features @ slopes.T / FEATURES**0.5 + 3.0) ** 4 + 1.0) / 3.5**4 * (1.0 + spread * chance)
    return Days(features, 0.5 + torch.rand(days, JOBS, generator=generator, dtype=torch.float64), durations)


class DurationNet(nn.Module):
    """One linear map of the features per job; durations are positive."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(FEATURES, JOBS).double()

    def forward(self, features: Tensor) -> Tensor:
        return nn.functional.softplus(self.layer(features) + 0.5)


def squared_error(predicted: Tensor, days: Days) -> Tensor:
    """Return the mean squared error of the durations."""
    return nn.functional.mse_loss(predicted, days.durations)


def through_the_program(predicted: Tensor, days: Days) -> Tensor:
    """Return minus the worth of the best fractional plans for the predicted durations, at the true durations."""
    plans = LPLayer()(
        -days.values, A_ub=predicted[:, None], b_ub=torch.full((1,), HOURS, dtype=torch.float64), lower=0.0, upper=1.0
    ).x
    overload = nn.functional.relu((days.durations * plans).sum(-1) - HOURS)
    return (OVERTIME * overload - (days.values * plans).sum(-1)).mean()


def direct(update: str, epsilon: float) -> Loss:
    """Return the direct loss of the regret after recourse."""
    criterion = tl.DirectLoss(TASK, epsilon=epsilon, update=update)
    return lambda predicted, days: criterion(days.pack(predicted), days.pack(days.durations))


def train(net: DurationNet, loss: Loss, days: Days, steps: int, rate: float, seed: int) -> DurationNet:
    """Return a copy of the network, trained on batches of 64 days."""
    net, generator = copy.deepcopy(net), torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(net.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        batch = torch.randint(len(days.features), (64,), generator=generator)
        sample = Days(*(part[batch] for part in days))
        optimizer.zero_grad()
        loss(net(sample.features), sample).backward()
        optimizer.step()
        schedule.step()
    return net


@torch.no_grad()
def regret(net: DurationNet, days: Days, factor: float = 1.0) -> float:
    """Return the regret after recourse in percent of what the best plans are worth."""
    truth = days.pack(days.durations)
    worth = TASK.worth(TASK.plan(days.pack(factor * net(days.features))), truth).sum()
    return float(100.0 * (1.0 - worth / TASK.worth(TASK.plan(truth), truth).sum()))


@torch.no_grad()
def bias(net: DurationNet, days: Days) -> float:
    """Return the mean predicted duration relative to the mean true one."""
    return float(net(days.features).mean() / days.durations.mean())


def run(seed: int, days: int, steps: int, epsilon: float) -> dict[str, tuple[float, float]]:
    """Return the regret of each method on 1,000 held-out days, and its mean prediction relative to the truth."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    slopes = (torch.rand(JOBS, FEATURES, generator=generator) < 0.5).double()
    training, validation, test = (make_days(count, slopes, generator) for count in (days, 500, 1000))
    fitted = train(DurationNet(), squared_error, training, 1000, 3e-2, seed)
    factor = min((1.0 + 0.05 * k for k in range(-2, 11)), key=lambda factor: regret(fitted, validation, factor))
    results = {"squared error": (regret(fitted, test), bias(fitted, test))}
    results["with a safety factor"] = regret(fitted, test, factor), bias(fitted, test) * factor
    losses: dict[str, Loss] = {"LP layer": through_the_program}
    losses |= {f"direct loss, {update}": direct(update, epsilon) for update in ("positive", "negative", "central")}
    for name, loss in losses.items():
        net = train(fitted, loss, training, steps, 1e-2, seed)
        results[name] = regret(net, test), bias(net, test)
    return results


def main() -> None:
    """Train with each seed, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--days", type=int, default=2000, help="days to train on")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--epsilon", type=float, default=0.1, help="of the direct loss, in units of the values")
    arguments = parser.parse_args()
    runs = [run(FIRST_SEED + seed, arguments.days, arguments.steps, arguments.epsilon) for seed in range(arguments.seeds)]
    print("regret after recourse, %      mean   predicted / true   each seed")
    for name in runs[0]:
        regrets, ratios = zip(*(results[name] for results in runs), strict=True)
        each = " ".join(f"{value:.2f}" for value in regrets)
        print(f"{name:<25} {statistics.mean(regrets):>8.2f} {statistics.mean(ratios):>18.2f}   {each}")


if __name__ == "__main__":
    main()
