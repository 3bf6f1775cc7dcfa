"""Learning on the synthetic data of Song et al. (2016, section 4.1): test average precision along 1,000 full-batch iterations.

20,000 points from N(0, I_10) are scored by a random net of four ReLU layers; the top 20% are positive, half of the points train.
The same architecture, freshly initialised, is trained by each loss. As in the paper, the settings of every loss (here the
learning rate and, for the direct losses, epsilon) are chosen by the average precision on the training set; then the chosen
settings run on other seeds.

    python benchmarks/synthetic.py --output synthetic

writes ``curves.json`` and ``curves.png`` and prints a table.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from matplotlib.figure import Figure
from rich.progress import Progress
from torch import Tensor, nn

import taskloss as tl

WIDTH = 10
POINTS = 20_000
LEARNING_RATES = (0.003, 0.01, 0.03, 0.1)
EPSILONS = (0.01, 0.1, 1.0, 10.0)
EVALUATE_EVERY = 10

Criterion = Callable[[Tensor, Tensor], Tensor]
METHODS: dict[str, Callable[[float], Criterion]] = {
    "direct positive": lambda epsilon: tl.DirectLoss("average_precision", epsilon=epsilon),
    "direct negative": lambda epsilon: tl.DirectLoss("average_precision", epsilon=epsilon, update="negative"),
    "hinge": lambda _: tl.StructuredHingeLoss("average_precision"),
    "perceptron": lambda _: tl.PerceptronLoss("average_precision"),
    "cross-entropy": lambda _: lambda scores, target: nn.functional.binary_cross_entropy_with_logits(scores, target.float()),
}


def four_layers() -> nn.Sequential:
    """Return a net of four ReLU layers with biases, and a linear unit that makes the score."""
    layers: list[nn.Module] = []
    for size in (10, WIDTH, WIDTH, WIDTH):
        layers += [nn.Linear(size, WIDTH), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(WIDTH, 1), nn.Flatten(0))


def make_data(seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return training points and target, test points and target."""
    torch.manual_seed(seed)
    teacher = four_layers()
    with torch.no_grad():
        for parameter in teacher.parameters():
            parameter.normal_()
        x = torch.randn(POINTS, 10)
        scores = teacher(x)
    target = torch.zeros(POINTS, dtype=torch.bool)
    target[scores.argsort(descending=True)[: POINTS // 5]] = True
    half = POINTS // 2
    return x[:half], target[:half], x[half:], target[half:]


def train(method: str, epsilon: float, learning_rate: float, seed: int, iterations: int) -> dict[str, object]:
    """Train one net; the curve in the result holds the test AP every few iterations."""
    x, target, test_x, test_target = make_data(seed)
    torch.manual_seed(seed + 1000)
    net = four_layers()
    criterion = METHODS[method](epsilon)
    optimizer = torch.optim.Adam(net.parameters(), lr=learning_rate)
    curve = []
    start = time.perf_counter()
    for iteration in range(iterations + 1):
        scores = net(x)
        if iteration % EVALUATE_EVERY == 0:
            with torch.no_grad():
                curve.append(tl.metrics.average_precision_score(net(test_x), test_target))
        optimizer.zero_grad()
        criterion(scores, target).backward()
        optimizer.step()
    with torch.no_grad():
        train_ap = tl.metrics.average_precision_score(net(x), target)
    return {
        "method": method,
        "epsilon": epsilon,
        "learning_rate": learning_rate,
        "seed": seed,
        "train_ap": train_ap,
        "test_ap": curve[-1],
        "curve": curve,
        "seconds": time.perf_counter() - start,
    }


def draw(runs: dict[str, list[dict[str, object]]], path: Path) -> None:
    """Draw the mean test AP with its range over seeds."""
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    for method, results in runs.items():
        curves = torch.tensor([result["curve"] for result in results])
        iterations = torch.arange(curves.shape[1]) * EVALUATE_EVERY
        (line,) = axes.plot(iterations, curves.mean(0), label=method)
        axes.fill_between(iterations, curves.amin(0), curves.amax(0), color=line.get_color(), alpha=0.15, linewidth=0)
    axes.set(xlabel="iteration", ylabel="test average precision")
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    figure.savefig(path, dpi=150)


def print_table(runs: dict[str, list[dict[str, object]]]) -> None:
    """Print the chosen settings, final test AP with its spread over seeds, test AP at iteration 100, final training AP."""
    print(f"{'method':<16}{'epsilon':>8}{'rate':>7}{'test AP':>9}{'spread':>8}{'at 100':>8}{'train AP':>9}{'s/run':>7}")
    for method, results in runs.items():
        column = {key: [float(result[key]) for result in results] for key in ("test_ap", "train_ap", "seconds")}
        column["early"] = [result["curve"][100 // EVALUATE_EVERY] for result in results]
        mean = {key: statistics.mean(values) for key, values in column.items()}
        print(
            f"{method:<16}{results[0]['epsilon']:>8}{results[0]['learning_rate']:>7}{mean['test_ap']:>9.4f}"
            f"{statistics.stdev(column['test_ap']):>8.4f}{mean['early']:>8.4f}{mean['train_ap']:>9.4f}{mean['seconds']:>7.1f}"
        )


def main() -> None:
    """Choose settings on seed 0, run them on the other seeds, print and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterations", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--output", type=Path, default=Path("synthetic"))
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    runs: dict[str, list[dict[str, object]]] = {}
    with Progress() as progress:
        bar = progress.add_task("", total=None)
        for method in METHODS:
            epsilons = EPSILONS if method.startswith("direct") else (1.0,)
            settings = [(epsilon, rate) for epsilon in epsilons for rate in LEARNING_RATES]
            progress.update(bar, total=len(settings) + arguments.seeds, completed=0, description=method)
            trials = []
            for epsilon, rate in settings:
                trials.append(train(method, epsilon, rate, 0, arguments.iterations))
                progress.advance(bar)
            best = max(trials, key=lambda trial: trial["train_ap"])
            runs[method] = []
            for seed in range(1, arguments.seeds + 1):
                runs[method].append(train(method, best["epsilon"], best["learning_rate"], seed, arguments.iterations))
                progress.advance(bar)
    print_table(runs)
    (arguments.output / "curves.json").write_text(json.dumps(runs))
    draw(runs, arguments.output / "curves.png")
    print(f"curves: {arguments.output / 'curves.png'}")


if __name__ == "__main__":
    main()
