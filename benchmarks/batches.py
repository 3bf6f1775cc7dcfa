"""Does exactness pay? Test AP of training on the AP of all samples, of batches, of batches with a memory, and on cross-entropy.

The same network is trained with AdamW by each method:

- ``AP, all samples``: one gradient over all the training samples per update. They fit into memory here, so the script calls
  ``criterion(model(features), target)``; in two passes over batches, ``taskloss.full_batch_backward`` gives the same gradient.
- ``AP, batches of b``: the AP of at most b samples, drawn at random (``plain``) or by ``StratifiedBatchSampler`` with at least
  two positives of each label (``stratified``).
- ``AP, batches of b with memory``: plain batches and ``ScoreMemory`` of the last seven, or of all but one of an epoch.
- ``cross-entropy``, of plain batches of 512 and of all samples.

Two budgets are reported from the same runs: the same number of parameter updates for all methods, and the same number of samples
seen. Within a budget, the weights with the highest validation AP are kept. The learning rate is the one, of seven, with the
highest validation AP, mean over the seeds, for each set, method and budget. The test samples choose nothing. (The range of the
learning rates was extended for all methods after validation had chosen its ends for some.)

- ``voc_action``: a linear head on frozen features of EfficientNet-Lite0, mean AP of ten actions; a third of the images each for
  training, validation and test.
- ``mammography`` (2.3% positive) and ``krvsk``, five moves against the rest (1.7% positive): two hidden layers of 64 units; 40%
  of the rows are for the test, 30% of the others for validation.

    pip install -e '.[cli,estimators,experiments]'
    python -m benchmarks.batches --data FOLDER --cache FOLDER --output batches.json

FOLDER holds ``voc2012_action/``, ``pretrained/`` and ``tabular/``. The features are kept in the cache. Finished runs are kept
beside the output in a ``.jsonl`` file, and a second call goes on from there.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from benchmarks.cells import Cells, Record
from benchmarks.splits import Split, split_samples
from rich.progress import Progress
from torch import Tensor, nn

import taskloss as tl
from taskloss.experiments.feature_cache import cached_arrays
from taskloss.experiments.pretrained import load_efficientnet_lite0
from taskloss.experiments.voc_action import UNKNOWN, Persons, read_persons, split_thirds
from taskloss.metrics import average_precision_score
from taskloss.samplers.division import stratified_batches
from taskloss.training import TrainingData, build_mlp

TABLES = {"mammography": ("bin_mammography", 1), "krvsk": ("mc_krvsk", 4)}
"""File and positive class of each table."""
SETS = ("voc_action", *TABLES)
RATES = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
UPDATES, EPOCHS = 300, 40
"""The two budgets: this many updates, and this many times the number of training samples."""
LOOKS = 40
"""Number of times that a run is validated within each budget."""
MIN_POSITIVES = 2
REMEMBERED = 7


class Method(NamedTuple):
    """How the gradient of an update is made."""

    loss: str
    batch_size: int | None = None
    """None for all samples."""
    stratified: bool = False
    memory: bool = False

    @property
    def name(self) -> str:
        of = "all samples" if self.batch_size is None else f"batches of {self.batch_size:,}"
        kind = " stratified" if self.stratified else " with memory" if self.memory else ""
        return f"{self.loss}, {of}{kind}"


METHODS = (
    Method("AP"),
    *(Method("AP", size, stratified) for size in (4096, 512, 64) for stratified in (True, False)),
    *(Method("AP", size, memory=True) for size in (512, 64)),
    Method("cross-entropy"),
    Method("cross-entropy", 512),
)


# --- the data -----------------------------------------------------------------------------------------------------------


def read_table(data: Path, name: str, seed: int, limit: int | None) -> Split:
    """Return the split of a table by a seed."""
    file, positive = TABLES[name]
    with np.load(data / "tabular" / f"{file}.npz", allow_pickle=False) as arrays:
        features, target = arrays["X"].astype(np.float64), (arrays["y"] == positive).astype(np.int64)
    rows = np.random.default_rng(0).permutation(len(target))[:limit]
    return split_samples(features[rows], target[rows], seed)


@torch.no_grad()
def person_features(data: Path, persons: Persons, count: int, advance: Callable[[int], object]) -> dict[str, np.ndarray]:
    """Compute the ``features``, ``(count, 1280)``, of the first persons with EfficientNet-Lite0."""
    network, batches = load_efficientnet_lite0(data), []
    for crops in persons.crops(32, np.arange(count)):
        batches.append(network.features(crops))
        advance(len(crops))
    return {"features": torch.cat(batches).numpy()}


def split_persons(features: np.ndarray, persons: Persons, seed: int) -> Split:
    """Split the persons that have features into thirds by image; features have unit variance in training."""
    parts = split_thirds(persons.image[: len(features)], seed)
    mean, deviation = (moment(features[parts[0]], axis=0) for moment in (np.mean, np.std))
    scaled = torch.from_numpy(((features - mean) / (deviation + 1e-6)).astype(np.float32))
    labels = torch.from_numpy(persons.labels)
    return Split(*(TrainingData(scaled[rows], labels[rows]) for rows in map(torch.from_numpy, parts)))


# --- one run ------------------------------------------------------------------------------------------------------------


def cross_entropy(scores: Tensor, target: Tensor) -> Tensor:
    """Return the binary cross-entropy of all known labels."""
    known = target != UNKNOWN
    return nn.functional.binary_cross_entropy_with_logits(scores[known], target[known].to(scores.dtype))


def batches_of(method: Method, target: Tensor, seed: int) -> tuple[int, Iterator[Tensor]]:
    """Return the number of batches of an epoch, and the rows of one batch after another, epoch after epoch."""
    size = method.batch_size or len(target)
    if method.stratified:
        sampler = tl.samplers.StratifiedBatchSampler(target, size, min_positives=MIN_POSITIVES, ignore_index=UNKNOWN, seed=seed)

        def stratified(epoch: int) -> Iterator[Any]:
            sampler.set_epoch(epoch)
            return iter(sampler)

        return len(sampler), _endless(stratified)
    count, alike = -(-len(target) // size), np.zeros(len(target), np.int64)
    if count == 1:
        return 1, _endless(lambda _: iter([np.arange(len(target))]))
    return count, _endless(lambda epoch: iter(stratified_batches(alike, count, np.random.default_rng([seed, epoch]))))


def _endless(epoch_of: Callable[[int], Iterator[Any]]) -> Iterator[Tensor]:
    epoch = 0
    while True:
        yield from map(torch.as_tensor, epoch_of(epoch))
        epoch += 1


def run_once(method: Method, rate: float, split: Split, seed: int, updates: int, epochs: int) -> Record:
    """Train one network, and return what is best by validation within each budget."""
    training = split.training
    labels = None if training.target.ndim == 1 else training.target.shape[1]
    model = build_mlp(training.features.shape[1], hidden=(64, 64) if labels is None else (), outputs=labels, seed=seed)
    per_epoch, batches = batches_of(method, training.target, seed)
    criterion: Callable[..., Tensor] = cross_entropy
    if method.loss == "AP":
        criterion = tl.DirectLoss("average_precision", ignore_index=UNKNOWN)
        if method.memory:
            criterion = tl.ScoreMemory(criterion, batches=min(REMEMBERED, per_epoch - 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    limits = {"updates": updates, "samples": epochs * per_epoch}
    looks = {-(-limit * i // LOOKS) for limit in limits.values() for i in range(1, LOOKS + 1)}
    curve: list[tuple[int, float, float]] = []
    for step in range(1, max(limits.values()) + 1):
        rows = next(batches)
        optimizer.zero_grad()
        criterion(model(training.features[rows]), training.target[rows]).backward()
        optimizer.step()
        if step in looks:
            curve.append((step, *(mean_ap(model, part) for part in (split.validation, split.test))))
    record: Record = {"batches": per_epoch}
    for budget, limit in limits.items():
        step, validation, test = max((point for point in curve if point[0] <= limit), key=lambda point: point[1])
        record[budget] = {"step": step, "steps": limit, "validation": validation, "test": test}
    return record


@torch.no_grad()
def mean_ap(model: nn.Module, samples: TrainingData) -> float:
    """Return the AP, mean over the labels."""
    return float(average_precision_score(model(samples.features), samples.target, ignore_index=UNKNOWN))


# --- all runs -----------------------------------------------------------------------------------------------------------


def methods_of(samples: int) -> list[Method]:
    """Return the methods that differ for this number of training samples: larger batches are all samples."""
    return [method for method in METHODS if method.batch_size is None or method.batch_size < samples]


def summarize(records: list[Record], budget: str) -> Record:
    """Choose the learning rate by validation, and return test AP with its standard error over the seeds."""
    by_rate = {rate: [record[budget] for record in records if record["rate"] == rate] for rate in RATES}
    by_rate = {rate: runs for rate, runs in by_rate.items() if runs}
    rate = max(by_rate, key=lambda rate: statistics.mean(run["validation"] for run in by_rate[rate]))
    values = [run["test"] for run in by_rate[rate]]
    error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else None
    return {"rate": rate, "steps": by_rate[rate][0]["steps"], "mean": statistics.mean(values), "error": error, "values": values}


def print_table(summary: dict[str, dict[str, dict[str, Record]]]) -> None:
    """Print test AP in percent: one row per method, two columns per set (same updates, same samples)."""
    print(
        f"{'test AP in %':<40}" + "".join(f"{name + ', ' + budget:>28}" for name in summary for budget in ("updates", "samples"))
    )
    for method in METHODS:
        cells = []
        for rows in summary.values():
            for budget in ("updates", "samples"):
                row = rows.get(method.name, {}).get(budget)
                error = "" if row is None or row["error"] is None else f" +- {100 * row['error']:.1f}"
                cells.append("" if row is None else f"{100 * row['mean']:.1f}{error} ({row['steps']} at {row['rate']:g})")
        print(f"{method.name:<40}" + "".join(f"{cell:>28}" for cell in cells))


def main() -> None:
    """Run every set, seed, method and learning rate, print the table and save the records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder that holds voc2012_action/, pretrained/ and tabular/")
    parser.add_argument("--cache", type=Path, help="folder for the features of the images")
    parser.add_argument("--seeds", type=int, default=3, help="splits, each with its own initial network")
    parser.add_argument("--output", type=Path, help="JSON file for the table and the records")
    parser.add_argument("--quick", action="store_true", help="few samples, steps and learning rates, one seed: does it run?")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    start = time.perf_counter()
    seeds, updates, epochs, rates = (1, 4, 2, RATES[1:2]) if arguments.quick else (arguments.seeds, UPDATES, EPOCHS, RATES)
    limit = 600 if arguments.quick else None
    cells = Cells(arguments.output and arguments.output.with_suffix(".jsonl"))
    records: dict[str, dict[str, list[Record]]] = {name: {} for name in SETS}
    with Progress() as progress:
        persons = read_persons(arguments.data)
        count = 60 if arguments.quick else len(persons)
        images = progress.add_task("features", total=count)
        make = functools.partial(person_features, arguments.data, persons, count, functools.partial(progress.advance, images))
        # The name says by_image since earlier caches had the persons in another order.
        stored = arguments.cache and arguments.cache / f"voc_action_by_image_efficientnet_lite0_{count}.npz"
        features = (make() if stored is None else cached_arrays(stored, make))["features"]
        progress.remove_task(images)
        bar = progress.add_task("", total=None)
        cases = []
        for seed in range(seeds):
            for name in SETS:
                split = (
                    split_persons(features, persons, seed)
                    if name == "voc_action"
                    else read_table(arguments.data, name, seed, limit)
                )
                methods = methods_of(len(split.training.target))
                cases += [(seed, name, split, method, rate) for method in methods for rate in rates]
        progress.update(bar, total=len(cases))
        for seed, name, split, method, rate in cases:
            progress.update(bar, description=f"{name}, {method.name}, seed {seed}")
            cell = {"set": name, "method": method.name, "rate": rate, "seed": seed, "updates_of": updates, "epochs_of": epochs}
            record = cells.run(cell, functools.partial(run_once, method, rate, split, seed, updates, epochs))
            records[name].setdefault(method.name, []).append(record)
            progress.advance(bar)
    summary = {
        name: {method: {budget: summarize(runs, budget) for budget in ("updates", "samples")} for method, runs in rows.items()}
        for name, rows in records.items()
    }
    print_table(summary)
    print(f"{time.perf_counter() - start:.0f} s in all")
    cells.write_summary(arguments.output, summary)


if __name__ == "__main__":
    main()
