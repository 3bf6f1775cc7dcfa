"""When a direct loss is ahead of cross-entropy: heat maps over positives, label noise, stopping, capacity and metric.

One network is trained by cross-entropy and, for each metric, one by the direct loss of that metric (epsilon 1, default update).
Everything else is equal: the rows, the initial weights, 300 full-batch steps of AdamW. The gain is the difference of the metric
on test rows, in points.

- *Positives*: 10 to 1,000 in the training rows, always 10% of them, so 100 to 10,000 rows. A quarter as many rows, with the same
  share, validate. The training rows of a smaller number are part of those of a larger one. The test rows, 10% positive too, are
  the same for all (at most 10,000).
- *Noise*: none, or 20% of the training and validation labels are flipped, whatever their class; never those of the test rows.
- *Stopping*: ``best``, the weights of the first step after which the metric of the validation rows, its mean over 10 steps, was
  highest (the rule of the estimators; cross-entropy has such a step for each metric), or ``last``, the weights after all steps.
  One run gives both.
- *Capacity*: a linear model, one hidden layer of 8 units, two of 64.
- *Metric*: ``METRICS``. F1 has the threshold that is best on the validation rows, for both losses and both ways of stopping.

Columns are mapped to normal distributions by their quantiles, as in the estimators. Cross-entropy starts from the log-odds of the
classes. A direct loss that would start without a gradient, as metrics of the top of a list do, takes over from cross-entropy
after 50 of the 300 steps, as in the estimators.

    pip install -e '.[cli,estimators,experiments]'
    python -m benchmarks.when_it_helps --data FOLDER --output when_it_helps.json --images docs/images

FOLDER holds ``tabular/`` with the files of ``TABLES``. Finished runs are kept beside the output in a ``.jsonl`` file, and a
second call goes on from there; what an interrupted run has makes maps too (``--draw`` draws them). All of it takes about 35
minutes of one core. A gain is a mean over tables of the mean over seeds; its standard error is over the tables.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
import torch
from benchmarks.cells import Cells, Record
from benchmarks.splits import cross_entropy
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure
from rich.progress import Progress
from torch import Tensor, nn

import taskloss as tl
from taskloss.estimators.features import FeatureMap
from taskloss.training import TrainingData, TrainingSettings, build_mlp, train

STEPS = 300
WARM_UP = 50
WINDOW = 10
"""Validation metrics are averaged over this many steps."""
SHARE = 0.1
"""Share of the positives in all rows."""
NOISE = 0.2
MOST_TEST_POSITIVES = 1_000
SEEDS = {10: 6, 30: 6, 100: 4, 300: 3, 1000: 3}
"""Number of seeds for each number of positives; there are more where a single run tells less."""
CAPACITIES: dict[str, tuple[int, ...]] = {"linear": (), "small": (8,), "normal": (64, 64)}
LEARNING_RATES = {"linear": 3e-2, "small": 3e-2, "normal": 3e-3}
"""Chosen among 0.001 to 0.1 with 30 positives of six tables and seed 100: the rate with the highest mean of both losses, stopped
at the best step, over average precision, partial AUC and recall, clean and noisy."""
CONDITIONS = {"clean": 0.0, "noise": NOISE}
STOPS = ("best", "last")


class Metric(NamedTuple):
    """A metric, and whether its direct loss starts with cross-entropy."""

    title: str
    task: tl.tasks.Task
    warm_up: bool = False

    def value(self, scores: np.ndarray, target: np.ndarray, threshold: float | None) -> float:
        """Return the exact metric; F1 at a threshold, or at its best one."""
        if isinstance(self.task, tl.FScore):
            threshold = best_threshold(scores, target) if threshold is None else threshold
            scores = np.where(scores > threshold, 1.0, -1.0)
        return float(self.task.score(scores, target))


METRICS = {
    "average_precision": Metric("average precision", tl.AveragePrecision()),
    "ndcg": Metric("NDCG", tl.NDCG()),
    "precision_at_k": Metric("precision in the first 5% of the list", tl.PrecisionAtK(0.05), warm_up=True),
    "recall_at_fpr": Metric("recall at 1% false positive rate", tl.RecallAtFPR(0.01), warm_up=True),
    "partial_auc": Metric("partial AUC, false positive rate up to 5%", tl.PartialAUC(0.05), warm_up=True),
    "f1": Metric("F1, threshold chosen on validation rows", tl.FScore(), warm_up=True),
}


class Table(NamedTuple):
    """A file, the classes that are positive, and the largest number of training positives that it has rows for."""

    file: str
    positive: tuple[int, ...]
    most: int


TABLES = {
    "adult": Table("tabular/bin_adult", (1,), 1000),
    "shuttle": Table("tabular/bin_shuttle", (1,), 1000),
    "krvsk-6": Table("tabular/mc_krvsk", (6,), 1000),
    "krvsk-13": Table("tabular/mc_krvsk", (13,), 1000),
    "penbased": Table("tabular/mc_penbased", (9,), 300),
    "annthyroid": Table("tabular/bin_annthyroid", (1,), 300),
    "pageblocks": Table("tabular/bin_pageblocks", (1,), 300),
    "mammography": Table("tabular/bin_mammography", (1,), 100),
    "wilt": Table("tabular/bin_wilt", (1,), 100),
    "segment": Table("tabular/mc_segment", (4,), 100),
}


class Case(NamedTuple):
    """What is run together: cross-entropy and the direct losses of all metrics."""

    seed: int
    table: str
    positives: int
    condition: str
    capacity: str


class Rows(NamedTuple):
    """Features and clean labels."""

    features: np.ndarray
    target: np.ndarray

    def take(self, rows: np.ndarray) -> Rows:
        return Rows(self.features[rows], self.target[rows])


def read_table(folder: Path, name: str) -> Rows:
    """Read a table as a problem of two classes."""
    table = TABLES[name]
    path = folder / f"{table.file}.npz"
    if not path.is_file():
        raise SystemExit(f"--data {folder}: expected a folder that holds {table.file}.npz; it is not there")
    with np.load(path, allow_pickle=False) as file:
        return Rows(file["X"].astype(np.float64), np.isin(file["y"], table.positive).astype(np.int64))


def validation_count(positives: int) -> int:
    """Return the number of validation positives that belong to a number of training positives."""
    return -(-positives // 4)


def draw_rows(rows: Rows, positives: int, most: int, seed: int) -> tuple[Rows, Rows, Rows]:
    """Draw training, validation and test rows, each with the same share of positives.

    The test rows do not depend on the number of positives, and a larger training set holds every smaller one.
    """
    rng = np.random.default_rng(seed)
    by_class = [rng.permutation(np.flatnonzero(rows.target == label)) for label in (0, 1)]
    ratio = round(1 / SHARE) - 1  # negatives per positive
    largest = most + validation_count(most)
    left = (len(by_class[0]) // ratio - largest, len(by_class[1]) - largest)
    tested = min(*left, MOST_TEST_POSITIVES)
    if tested < 1:
        raise ValueError(f"{len(by_class[1])} positives and {len(by_class[0])} negatives are too few for {most} to train on")

    def part(start: int, count: int) -> Rows:
        ranges = (slice(start * each, (start + count) * each) for each in (ratio, 1))
        return rows.take(np.concatenate([order[chosen] for order, chosen in zip(by_class, ranges, strict=True)]))

    return part(tested, positives), part(tested + most, validation_count(positives)), part(0, tested)


def flip(target: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """Flip this share of the labels.

    >>> int(flip(np.zeros(50, np.int64), 0.2, np.random.default_rng(0)).sum())
    10
    """
    flipped = target.copy()
    flipped[rng.permutation(len(target))[: round(share * len(target))]] ^= 1
    return flipped


def best_threshold(scores: np.ndarray, target: np.ndarray) -> float:
    """Return the threshold with the highest F1."""
    return float(tl.thresholds.for_f_score(scores, target).threshold)


def best_step(values: Sequence[float]) -> int:
    """Return the first step at which the mean of the last ``WINDOW`` values is highest, among those with a full window.

    >>> best_step([1.0] + [0.0] * 20 + [0.5] * 20)
    30
    """
    means = np.convolve(values, np.full(WINDOW, 1 / WINDOW), "valid").round(12)
    return int(means.argmax()) + WINDOW - 1


Weights = dict[str, Tensor]


class Run(NamedTuple):
    """The weights after each step, and the scores that they give the validation rows."""

    weights: list[Weights]
    scores: list[np.ndarray]


def run_steps(
    net: nn.Module,
    criterion: Callable[[Tensor, Tensor], Tensor],
    training: TrainingData,
    validation: Tensor,
    settings: TrainingSettings,
) -> Run:
    """Train a network for a fixed number of steps and keep what it was after each."""
    run = Run([], [])

    @torch.no_grad()
    def keep(_: Any) -> None:
        run.weights.append({name: value.clone() for name, value in net.state_dict().items()})
        run.scores.append(net(validation).double().numpy())

    train(net, criterion, training, None, settings=settings, on_iteration=keep)
    return run


def start_at(net: nn.Sequential, shift: float) -> None:
    """Add a constant to all scores."""
    with torch.no_grad():
        net[-2].bias += shift


def has_gradient(net: nn.Module, criterion: nn.Module, training: TrainingData) -> bool:
    """Whether the loss has a gradient for the scores of a network."""
    scores = net(training.features).detach().requires_grad_()
    criterion(scores, training.target).backward()
    return scores.grad is not None and bool(scores.grad.any())


def run_direct(
    metric: Metric,
    fresh: Callable[[], nn.Sequential],
    entropy: Run,
    training: TrainingData,
    validation: Tensor,
    settings: TrainingSettings,
) -> Run:
    """Train by the direct loss of a metric; where it warms up, the first steps are those of cross-entropy."""
    net, criterion = fresh(), tl.DirectLoss(metric.task)
    if not metric.warm_up and has_gradient(net, criterion, training):
        return run_steps(net, criterion, training, validation, settings)
    net.load_state_dict(entropy.weights[WARM_UP - 1])
    if isinstance(metric.task, tl.FScore):
        with torch.no_grad():
            start_at(net, -best_threshold(net(training.features).double().numpy(), training.target.numpy()))
    rest = replace(settings, iterations=STEPS - WARM_UP)
    after = run_steps(net, criterion, training, validation, rest)
    return Run(entropy.weights[:WARM_UP] + after.weights, entropy.scores[:WARM_UP] + after.scores)


def test_values(metric: Metric, run: Run, net: nn.Module, target: np.ndarray, test: tuple[Tensor, np.ndarray]) -> Record:
    """Return the metric of the test rows for each way of stopping, and the best step."""
    best = best_step([metric.value(scores, target, None) for scores in run.scores])
    record: Record = {"step": best + 1}
    for stop, step in zip(STOPS, (best, len(run.weights) - 1), strict=True):
        net.load_state_dict(run.weights[step])
        with torch.no_grad():
            scores = net(test[0]).double().numpy()
        record[stop] = metric.value(scores, test[1], best_threshold(run.scores[step], target))
    return record


def run_case(rows: Rows, case: Case, metrics: Sequence[str] = tuple(METRICS)) -> Record:
    """Train by cross-entropy and by the direct loss of each metric; return the values of both."""
    seed, table, positives, condition, capacity = case
    parts = draw_rows(rows, positives, TABLES[table].most, seed)
    rng = np.random.default_rng([seed, positives])
    labels = [flip(part.target, CONDITIONS[condition], rng) for part in parts[:2]]
    features = FeatureMap.fit(np.concatenate([part.features for part in parts[:2]]), "quantile")
    inputs = [features.transform(part.features) for part in parts]
    training, test = TrainingData(inputs[0], torch.from_numpy(labels[0])), (inputs[2], parts[2].target)

    def fresh() -> nn.Sequential:
        return build_mlp(inputs[0].shape[1], hidden=CAPACITIES[capacity], seed=seed)

    net = fresh()
    start_at(net, float(np.log(labels[0].mean() / (1 - labels[0].mean()))))
    settings = TrainingSettings(iterations=STEPS, learning_rate=LEARNING_RATES[capacity])  # up to 32,768 rows are one batch
    entropy = run_steps(net, cross_entropy, training, inputs[1], settings)
    record: Record = {}
    for name in metrics:
        direct = run_direct(METRICS[name], fresh, entropy, training, inputs[1], settings)
        runs = {"direct": direct, "cross_entropy": entropy}
        record[name] = {method: test_values(METRICS[name], run, net, labels[1], test) for method, run in runs.items()}
    return record


def all_cases(quick: bool) -> Iterator[Case]:
    """Yield all cases, seed by seed: what an interrupted run has makes maps."""
    if quick:
        yield from itertools.starmap(Case, itertools.product((0,), ("wilt",), (10,), CONDITIONS, ("linear",)))
        return
    for seed in range(max(SEEDS.values())):
        for positives, table in itertools.product(SEEDS, TABLES):
            if seed < SEEDS[positives] and positives <= TABLES[table].most:
                for condition, capacity in itertools.product(CONDITIONS, CAPACITIES):
                    yield Case(seed, table, positives, condition, capacity)


class Gain(NamedTuple):
    """Direct minus cross-entropy in points, and the level of cross-entropy in percent."""

    mean: float
    error: float
    level: float
    tables: int


def gain_of(records: Mapping[Case, Record], name: str, stop: str) -> Gain | None:
    """Return the gain of a metric over these cases; None if there are none.

    Seeds are averaged first, then what else differs within a table, then the tables.
    """
    by_cell: dict[tuple[Any, ...], list[tuple[float, float]]] = {}
    for case, record in records.items():
        direct, entropy = (100 * record[name][method][stop] for method in ("direct", "cross_entropy"))
        by_cell.setdefault(case[1:], []).append((direct - entropy, entropy))
    by_table: dict[str, list[tuple[float, ...]]] = {}
    for (table, *_), runs in by_cell.items():
        by_table.setdefault(table, []).append(_means(runs))
    if not by_table:
        return None
    gap, level = zip(*map(_means, by_table.values()), strict=True)
    error = statistics.stdev(gap) / len(gap) ** 0.5 if len(gap) > 1 else float("nan")
    return Gain(statistics.mean(gap), error, statistics.mean(level), len(by_table))


def _means(rows: Sequence[tuple[float, ...]]) -> tuple[float, ...]:
    """Return the mean of each column."""
    return tuple(map(statistics.mean, zip(*rows, strict=True)))


def summarize(records: Mapping[Case, Record]) -> dict[str, Gain]:
    """Return the gain of every cell, by ``metric/condition/stop/capacity/positives``."""
    gains = {}
    for condition, capacity, positives in itertools.product(CONDITIONS, CAPACITIES, SEEDS):
        cell = {case: each for case, each in records.items() if case[2:] == (positives, condition, capacity)}
        for name, stop in itertools.product(METRICS, STOPS):
            gain = gain_of(cell, name, stop)
            if gain is not None:
                gains["/".join((name, condition, stop, capacity, str(positives)))] = gain
    return gains


RANGES = {"10": (10,), "30 and 100": (30, 100), "300 and 1,000": (300, 1000), "all": tuple(SEEDS)}


def print_overview(records: Mapping[Case, Record]) -> None:
    """Print the gains over ranges of the number of positives, for the linear model and for both networks together."""
    for (title, counts), linear in itertools.product(RANGES.items(), (True, False)):
        print(f"{'linear' if linear else 'small and normal'}, positives: {title}")
        for name, metric in METRICS.items():
            line = f"    {metric.title:<45}"
            for condition, stop in itertools.product(CONDITIONS, STOPS):
                part = {
                    case: each
                    for case, each in records.items()
                    if case.condition == condition and case.positives in counts and (case.capacity == "linear") == linear
                }
                gain = gain_of(part, name, stop)
                line += f"{condition}, {stop}: {'-' if gain is None else f'{gain.mean:+.1f} +- {gain.error:.1f}':<16}"
            print(line)


STOP_TITLES = {"best": "best validation step", "last": f"all {STEPS} steps"}
CONDITION_TITLES = {"clean": "clean labels", "noise": f"{NOISE:.0%} of labels flipped"}
LARGEST_COLOUR = 15.0
"""Gain in points that has the full colour; larger ones have it too."""


def draw_map(gains: dict[str, Gain], name: str, path: Path) -> None:
    """Draw the gains of one metric: a block per condition and way of stopping, a row per capacity, a column per positives."""
    mpl.rcParams.update({"svg.hashsalt": name, "font.size": 8})
    figure = Figure(figsize=(3.7, 6.6), layout="constrained", facecolor="white")
    blocks = list(itertools.product(CONDITIONS, STOPS))
    figure.suptitle(f"Gain of the direct loss over cross-entropy, points:\n{METRICS[name].title}", fontsize=8.5)
    panels = figure.subplots(len(blocks), 1, sharex=True)
    norm = TwoSlopeNorm(0.0, -LARGEST_COLOUR, LARGEST_COLOUR)
    for axes, (condition, stop) in zip(panels, blocks, strict=True):
        keys = [["/".join((name, condition, stop, capacity, str(count))) for count in SEEDS] for capacity in CAPACITIES]
        values = np.array([[gains[key].mean if key in gains else np.nan for key in row] for row in keys])
        image = axes.imshow(values, cmap="PuOr_r", norm=norm, aspect="auto")
        for (row, column), value in np.ndenumerate(values):
            if not np.isnan(value):
                _write_cell(axes, row, column, gains[keys[row][column]], image.cmap(norm(value)))
        axes.set_title(f"{CONDITION_TITLES[condition]}, {STOP_TITLES[stop]}", fontsize=8, loc="left", pad=3)
        axes.set_yticks(range(len(CAPACITIES)), list(CAPACITIES))
        axes.set_xticks(range(len(SEEDS)), [f"{count:,}" for count in SEEDS])
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
    panels[-1].set_xlabel("positives in the training rows (10% of the rows)")
    bar = figure.colorbar(
        image, ax=panels, location="bottom", aspect=40, pad=0.02, extend="both", ticks=[-15, -10, -5, 0, 5, 10, 15]
    )
    bar.set_label("cross-entropy ahead          direct loss ahead")
    figure.savefig(path, metadata={"Date": None})


def _write_cell(axes: Any, row: int, column: int, gain: Gain, colour: tuple[float, float, float, float]) -> None:
    """Write the gain, bold beyond two standard errors, and its standard error below it."""
    ink = "white" if np.dot(colour[:3], (0.3, 0.59, 0.11)) < 0.45 else "black"
    weight = "bold" if abs(gain.mean) > 2 * gain.error else "normal"
    axes.text(column, row - 0.16, f"{gain.mean:+.1f}", ha="center", va="center", color=ink, weight=weight)
    axes.text(column, row + 0.26, f"± {gain.error:.1f}", ha="center", va="center", color=ink, fontsize=6.5)


def print_gains(gains: dict[str, Gain]) -> None:
    """Print a line per metric, condition, way of stopping and capacity: gain, error and the level of cross-entropy."""
    print(f"{'gain of direct over cross-entropy, points (level)':<54}" + "".join(f"{count:>22,}" for count in SEEDS))
    for title in dict.fromkeys(key.rsplit("/", 1)[0] for key in gains):
        cells = [gains.get(f"{title}/{count}") for count in SEEDS]
        print(
            f"{title:<54}"
            + "".join(
                f"{'-' if cell is None else f'{cell.mean:+.1f} +- {cell.error:.1f} ({cell.level:.1f})':>22}" for cell in cells
            )
        )


def main() -> None:
    """Run every case, print the gains, save them with the records, and draw the maps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with tabular/")
    parser.add_argument("--output", type=Path, help="JSON file for the gains and records")
    parser.add_argument("--images", type=Path, help="folder for the heat maps")
    parser.add_argument("--draw", action="store_true", help="run nothing, only use the runs that are finished")
    parser.add_argument("--quick", action="store_true", help="one small table, 10 positives, one seed: does it run?")
    arguments = parser.parse_args()
    start = time.process_time()
    torch.set_num_threads(1)
    store = Cells(arguments.output and arguments.output.with_suffix(".jsonl"))
    cases, records, tables = list(all_cases(arguments.quick)), {}, {}
    with Progress() as progress:
        bar = progress.add_task("", total=len(cases))
        for case in cases:
            cell = {**dict(zip(Case._fields, case, strict=True)), "learning_rate": LEARNING_RATES[case.capacity]}
            progress.update(bar, advance=1, description=", ".join(map(str, case)))
            if arguments.draw and not store.knows(cell):
                continue
            if case.table not in tables:
                tables[case.table] = read_table(arguments.data, case.table)
            records[case] = store.run(cell, lambda case=case: run_case(tables[case.table], case))
    gains = summarize(records)
    print_gains(gains)
    print_overview(records)
    print(f"{len(records)} of {len(cases)} cases; {time.process_time() - start:.0f} s in all")
    store.write_summary(arguments.output, {key: gain._asdict() for key, gain in gains.items()})
    if arguments.images:
        arguments.images.mkdir(parents=True, exist_ok=True)
        for name in METRICS:
            draw_map(gains, name, arguments.images / f"when_it_helps_{name}.svg")


if __name__ == "__main__":
    main()
