"""What the experiments of Meng et al. (2021) with images share: splits, class imbalance, and one training run.

A seed stands for a split, for the samples that are dropped, for the initial weights and for the batches. Runs take a fixed
number of steps of plain SGD; the learning rate is chosen by the validation samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from taskloss.experiments.feature_cache import cached_arrays
from taskloss.experiments.image_sets import read_image_set
from taskloss.experiments.journal import Cell, Record
from taskloss.experiments.residual_network import ARCHITECTURES, ResidualNetwork
from taskloss.experiments.runner import Files, Run, Runner
from taskloss.training import Checkpoint, Criterion, TrainingData, TrainingSettings, train

BATCH = 64
PAPER_RATES = (0.1, 0.01, 0.001)
PAPER_ITERATIONS = 40_000
QUICK_RATES = (1.0, 0.1, 0.01)
"""Learning rates of runs that are fifty times shorter than the paper's: higher by one decade."""
QUICK_ITERATIONS = 800
WIDENED = 2
"""Decades that are added to the learning rates, at most, where the best one is the lowest or the highest."""
DECAY_AT = (1 / 20, 1 / 4, 5 / 8)
"""Where the learning rate falls to a third, as shares of a run: 2,000, 10,000 and 25,000 of the paper's 40,000 steps."""
LONG = 5000
"""Runs of at least this many steps are checkpointed, this often."""
TUNED_ON_ALL_SEEDS = ("stl10",)
"""Small data sets, where the validation of a single seed would choose the learning rate by chance."""
SETS = {"cat_dog": "Cat&Dog", "cifar10": "CIFAR10", "tiny_imagenet100": "Tiny-ImageNet-100", "stl10": "STL10"}
"""The data sets and their titles; Tiny-ImageNet-100 stands where the paper has CIFAR100."""
VALIDATION = {"cat_dog": 0.05, "cifar10": 0.1, "cifar100": 0.1, "tiny_imagenet100": 0.1, "stl10": 0.2}
"""Share of the training images that is kept for validation: as in the paper, 1,000 of 20,000 and so on."""
TEST = 0.2
"""Share of the images that is kept for testing where a data set has no test part."""
SCORED = 512
"""Number of images that are scored at once."""


class Images(NamedTuple):
    """Pixels, uint8 ``(n, 3, side, side)``, and labels, int64 ``(n,)``."""

    pixels: Tensor
    labels: Tensor

    def rows(self, index: np.ndarray) -> Images:
        """Return the images of these indices."""
        chosen = torch.from_numpy(index)
        return Images(self.pixels[chosen], self.labels[chosen])


class Parts(NamedTuple):
    """The images to train on, to choose settings by, and to report on."""

    training: Images
    validation: Images
    test: Images


def cache_path(files: Files, name: str, side: int) -> Path:
    """Return the file of the decoded images of a data set."""
    return files.cache / f"images-{name}-{side}.npz"


def cache_images(runner: Runner, names: Iterable[str], side: int) -> None:
    """Decode the images of the data sets, unless they are cached."""
    for name in names:

        def make(name: str = name) -> dict[str, np.ndarray]:
            images = read_image_set(runner.files.data_folder(), name, side)
            test = images.test or images.training._replace(pixels=images.training.pixels[:0], labels=images.training.labels[:0])
            return {
                "pixels": images.training.pixels,
                "labels": images.training.labels,
                "test pixels": test.pixels,
                "test labels": test.labels,
            }

        with runner.show(f"images of {SETS.get(name, name)}", 1) as report:
            cached_arrays(cache_path(runner.files, name, side), make)
            report(1, "images", None)


def load_parts(files: Files, name: str, side: int, seed: int) -> Parts:
    """Split the cached images of a data set."""
    with np.load(cache_path(files, name, side), allow_pickle=False) as arrays:
        images, test = (
            Images(torch.from_numpy(arrays[f"{part}pixels"]), torch.from_numpy(arrays[f"{part}labels"])) for part in ("", "test ")
        )
    order = np.random.default_rng([seed, 0]).permutation(len(images.labels))
    if not len(test.labels):
        tested = round(TEST * len(order))
        test, order = images.rows(order[:tested]), order[tested:]
    validated = round(VALIDATION[name] * len(order))
    return Parts(images.rows(order[validated:]), images.rows(order[:validated]), test)


def binary_parts(parts: Parts, ratio: float, seed: int) -> Parts:
    """Make the first half of the classes positive, and drop negatives from the training images until ``ratio`` are positive.

    Validation and test keep all their images: the AUC does not depend on the ratio, but its error does.
    """
    half = count_classes(parts) // 2
    training, validation, test = (part._replace(labels=(part.labels < half).long()) for part in parts)
    return Parts(training.rows(drop_negatives(training.labels.numpy(), ratio, seed)), validation, test)


def count_classes(parts: Parts) -> int:
    """Return the number of classes; every class has training images."""
    return int(parts.training.labels.max()) + 1


def drop_negatives(target: np.ndarray, ratio: float, seed: int) -> np.ndarray:
    """Return the indices of all positives and of so many negatives that ``ratio`` are positive, or all if there are fewer."""
    positives, negatives = np.flatnonzero(target == 1), np.flatnonzero(target == 0)
    kept = min(len(negatives), round(len(positives) * (1 - ratio) / ratio))
    return np.sort(np.concatenate([positives, np.random.default_rng([seed, 1]).permutation(negatives)[:kept]]))


def train_network(
    cell: Cell,
    files: Files,
    training: Images,
    criterion: Criterion,
    *,
    outputs: int = 1,
    make_optimizer: Callable[[nn.Module], torch.optim.Optimizer] | None = None,
) -> tuple[nn.Module, tuple[float, ...]]:
    """Train a network as the cell says, and return it with its losses, one per step; a run that diverges ends early.

    Args:
        cell: ``network``, ``rate``, ``iterations`` and ``seed``, and ``bias``, the initial bias of the output, if it is given.
        files: where the checkpoints of long runs are kept.
        training: the images to train on.
        criterion: the loss.
        outputs: number of scores per image.
        make_optimizer: returns the optimizer of methods that bring their own; by default SGD with the decays of the paper.
    """
    model = ResidualNetwork(ARCHITECTURES[cell["network"]], outputs, cell["seed"])
    if "bias" in cell:
        nn.init.constant_(model.output.bias, cell["bias"])
    iterations = cell["iterations"]
    settings = TrainingSettings(
        iterations=iterations,
        optimizer="sgd",
        learning_rate=cell["rate"],
        weight_decay=0.0,
        batch_size=BATCH,
        decay_after=tuple(max(1, round(share * iterations)) for share in DECAY_AT),
    )
    losses: list[float] = []
    try:
        losses += train(
            model,
            criterion,
            TrainingData(training.pixels, training.labels),
            None,
            settings=settings,
            seed=cell["seed"],
            optimizer=make_optimizer(model) if make_optimizer else None,
            checkpoint=_checkpoint(cell, files) if iterations >= LONG else None,
        ).losses
    except ValueError:
        if bool(score_images(model, training.pixels[:BATCH]).isfinite().all()):
            raise  # Another error, and a mistake of ours: the losses refuse scores that are not finite.
    return model.eval(), tuple(losses)


def _checkpoint(cell: Cell, files: Files) -> Checkpoint:
    name = "-".join(str(value) for _, value in sorted(cell.items()))
    return Checkpoint(files.cache / "checkpoints" / f"{name}.safetensors", every=LONG)


@torch.no_grad()
def score_images(model: nn.Module, pixels: Tensor) -> Tensor:
    """Return the scores of the images, in batches."""
    model.eval()
    return torch.cat([model(part) for part in pixels.split(SCORED)])


def run_tuned(
    runner: Runner,
    function: Run,
    cells: Sequence[Cell],
    is_tuned_on: Callable[[Cell], bool],
    rates: Sequence[float],
    *,
    widened: int | None = None,
) -> tuple[list[Record], list[Record]]:
    """Run the cells with the learning rate that is best for their data set and method; return their records and those tried.

    The rate is chosen on those of the cells that ``is_tuned_on`` picks, with the first seed, or with all of them for the data
    sets of ``TUNED_ON_ALL_SEEDS``; ``widened`` is that of :func:`tune_rates`.
    """
    picked = [cell for cell in cells if is_tuned_on(cell) and (cell["seed"] == 0 or cell["set"] in TUNED_ON_ALL_SEEDS)]
    tried = tune_rates(runner, function, picked, rates, widened=widened)
    chosen = best_rates(tried)
    tuned = [{**cell, "rate": chosen[cell["set"], cell["method"]]} for cell in cells]
    return runner.run("all cells", function, tuned), tried


def tune_rates(
    runner: Runner, function: Run, cells: Sequence[Cell], rates: Sequence[float], *, widened: int | None = None
) -> list[Record]:
    """Run the cells with every rate, and those of a data set and method with others while their best one is at the edge.

    Then the next decade is tried, ``widened`` times at most, by default ``WIDENED``.
    """
    tried = runner.run("learning rates", function, [{**cell, "rate": rate} for cell in cells for rate in rates])
    for _ in range(WIDENED if widened is None else widened):
        wider = []
        for key, best in best_rates(tried).items():
            same = [record["rate"] for record in tried if (record["set"], record["method"]) == key]
            if best in (min(same), max(same)):
                rate = float(f"{best * (0.1 if best == min(same) else 10.0):.6g}")
                wider += [{**cell, "rate": rate} for cell in cells if (cell["set"], cell["method"]) == key]
        tried += runner.run("more learning rates", function, wider)
    return tried


def best_rates(tried: Iterable[Record]) -> dict[tuple[str, str], float]:
    """Return the rate with the highest mean ``chosen_by``, a validation metric, for each data set and method."""
    values: dict[tuple[str, str], dict[float, list[float]]] = {}
    for record in tried:
        of_rates = values.setdefault((record["set"], record["method"]), {})
        of_rates.setdefault(record["rate"], []).append(record["chosen_by"])
    return {key: max(of_rates, key=lambda rate: fmean(of_rates[rate])) for key, of_rates in values.items()}
