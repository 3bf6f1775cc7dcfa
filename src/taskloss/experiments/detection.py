"""Table 2 of Song et al. (2016): object detection by R-CNN, with and without label noise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from statistics import fmean
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from taskloss import metrics
from taskloss.experiments.boxes import non_maximum_suppression
from taskloss.experiments.detection_features import read_proposals, run_chunk
from taskloss.experiments.detection_metric import Detections, GroundTruth, voc_average_precision
from taskloss.experiments.detection_page import make_page
from taskloss.experiments.detection_paper import BATCHES, HIDDEN, METHODS, NOISE, PAPER_RATES, SUPPRESSION
from taskloss.experiments.experiment import Experiment, Results
from taskloss.experiments.journal import Cell, Record
from taskloss.experiments.learning import flip_labels, train_or_diverge
from taskloss.experiments.methods import METHODS as CRITERIA
from taskloss.experiments.page import Page
from taskloss.experiments.runner import Files, Runner
from taskloss.experiments.voc_detection import CLASSES, read_detection
from taskloss.training import TrainingData, TrainingSettings, build_mlp, train

Head = Callable[[Tensor], Tensor]
"""Maps features to the scores of one class."""

RATES = (1e-4, 3e-4, 1e-3, 3e-3)
EPSILONS = (0.1, 1.0, 10.0)
POSITIVE = 0.5
"""A box is positive for a class if it overlaps one of its objects at least so much."""
NEGATIVES_PER_POSITIVE, FEWEST_NEGATIVES, MOST_NEGATIVES = 3, 4000, 10_000
VALIDATION = 5
"""One of so many training images is kept to choose the settings."""


def plan_chunks(cell: Cell, split: str) -> list[Cell]:
    """Return the chunks of images of a split, each as the cell of a run."""
    images, near, others = (
        (cell["training_images"], cell["near"], cell["others"])
        if split == "train"
        else (cell["test_images"], 0, cell["tested_boxes"])
    )
    return [
        {"split": split, "first": first, "images": min(cell["chunk"], images - first)}
        | {"near": near, "others": others, "side": cell["side"]}
        for first in range(0, images, cell["chunk"])
    ]


def run_heads(cell: Cell, files: Files) -> Record:
    """Train a head for every class; record its AP on boxes of held-out images and, if the cell says so, as a detector.

    A head whose training diverges finds nothing: its AP is 0.
    """
    proposals = read_proposals(plan_chunks(cell, "train"), files)
    features = torch.from_numpy(proposals.features).float()
    mean, deviation = features.mean(0), features.std(0) + 1e-6
    features = (features - mean) / deviation
    overlap, held_out = torch.from_numpy(proposals.overlap).float(), torch.from_numpy(proposals.image % VALIDATION == 0)
    softmax = _train_softmax(cell, features, overlap, ~held_out) if cell["method"] == "softmax" else None
    heads: list[Head | None] = []
    validation: list[float] = []
    for index in range(len(CLASSES)):
        rows, target = _draw_boxes(overlap[:, index], cell["noise"], 1000 * cell["seed"] + index)
        of_validation = held_out[rows]
        if softmax is None:
            heads.append(
                _train_head(cell, TrainingData(features[rows], target).rows(torch.nonzero(~of_validation).flatten()), index)
            )
        else:
            heads.append(partial(_log_odds, softmax, index=index))
        head = heads[index]
        if head is None:
            validation.append(0.0)
            continue
        with torch.no_grad():
            scores = head(features[rows[of_validation]])
        validation.append(round(float(metrics.average_precision_score(scores, target[of_validation])), 4))
    record: Record = {"validation": validation, "diverged": [head is None for head in heads].count(True)}
    if cell["detect"]:
        record["test"] = _detect(heads, mean, deviation, cell, files)
    return record


def _draw_boxes(overlap: Tensor, noise: float, seed: int) -> tuple[Tensor, Tensor]:
    """Return the rows of all positive boxes of a class and of a draw of negative ones, and their labels, a share flipped."""
    generator = torch.Generator().manual_seed(seed)
    positive = overlap >= POSITIVE
    positives, others = (torch.nonzero(mask).flatten() for mask in (positive, ~positive))
    count = min(max(NEGATIVES_PER_POSITIVE * len(positives), FEWEST_NEGATIVES), MOST_NEGATIVES)
    rows = torch.cat([positives, others[torch.randperm(len(others), generator=generator)[:count]]])
    return rows, flip_labels(positive[rows].long(), noise, generator)


def _train_head(cell: Cell, data: TrainingData, index: int) -> nn.Module | None:
    """Train one class against the rest; None if the training diverges."""
    model = build_mlp(data.features.shape[1], hidden=HIDDEN, seed=1000 * cell["seed"] + index)
    criterion = CRITERIA[cell["method"]](cell["weight"])
    finite = train_or_diverge(model, criterion, data, None, settings=_settings(cell), seed=cell["seed"])
    return model if finite else None


def _train_softmax(cell: Cell, features: Tensor, overlap: Tensor, allowed: Tensor) -> nn.Module:
    """Train one network for all classes and the background, by the cross-entropy of the class that a box overlaps most."""
    value, best = overlap.max(1)
    target = torch.where(value >= POSITIVE, best, len(CLASSES))
    model = build_mlp(features.shape[1], hidden=(len(CLASSES) * HIDDEN[0],), outputs=len(CLASSES) + 1, seed=cell["seed"])
    data = TrainingData(features[allowed], target[allowed])
    train(model, nn.functional.cross_entropy, data, None, settings=_settings(cell), seed=cell["seed"])
    return model


def _log_odds(model: nn.Module, x: Tensor, *, index: int) -> Tensor:
    """Return the log-odds of a class against all others."""
    logits = model(x)
    return logits[:, index] - torch.cat([logits[:, :index], logits[:, index + 1 :]], 1).logsumexp(1)


def _settings(cell: Cell) -> TrainingSettings:
    paper = cell["optimizer"] == "sgd"
    return TrainingSettings(
        iterations=cell["iterations"],
        batch_size=cell["batch"],
        optimizer=cell["optimizer"],
        learning_rate=cell["rate"],
        weight_decay=1e-7 if paper else 0.01,
    )


def _detect(heads: Sequence[Head | None], mean: Tensor, deviation: Tensor, cell: Cell, files: Files) -> list[float]:
    """Return the average precision of detections of each class: scores, non-maximum suppression in each image, VOC's rules."""
    proposals = read_proposals(plan_chunks(cell, "val"), files)
    features = (torch.from_numpy(proposals.features).float() - mean) / deviation
    images = read_detection(files.data_folder()).of_split("val")[: cell["test_images"]]
    starts = np.searchsorted(proposals.image, np.arange(len(images) + 1))
    results = []
    for index, head in enumerate(heads):
        if head is None:
            results.append(0.0)
            continue
        with torch.no_grad():
            scores = head(features).numpy()
        kept = np.concatenate(
            [
                first + non_maximum_suppression(proposals.boxes[first:last], scores[first:last], SUPPRESSION)
                for first, last in pairwise(starts)
            ]
        )
        found = Detections(proposals.image[kept], proposals.boxes[kept], scores[kept])
        chosen = [image.box_class == index for image in images]
        truth = GroundTruth(
            np.repeat(np.arange(len(images)), [int(mask.sum()) for mask in chosen]),
            np.concatenate([image.boxes[mask] for image, mask in zip(images, chosen, strict=True)]),
            np.concatenate([image.difficult[mask] for image, mask in zip(images, chosen, strict=True)]),
        )
        results.append(round(voc_average_precision(found, truth), 4))
    return results


@dataclass(frozen=True)
class Detection(Experiment):
    """Heads on features of a pretrained SqueezeNet, one class against the rest, in mini-batches."""

    seeds: int = 3
    iterations: int = 300
    training_images: int = 1464
    test_images: int = 400
    near: int = 25
    others: int = 15
    tested_boxes: int = 150
    side: int = 128
    chunk: int = 50

    name: ClassVar[str] = "detection"
    title: ClassVar[str] = "Object detection of PASCAL VOC 2012 by R-CNN"
    source: ClassVar[str] = "Song et al. 2016, table 2; older version, table 2"

    def run(self, runner: Runner, seeds: int) -> Results:
        data = read_detection(runner.files.data_folder())
        base: Cell = {"experiment": self.name, **asdict(self)}
        del base["seeds"]
        base["training_images"] = min(self.training_images, len(data.of_split("train")))
        base["test_images"] = min(self.test_images, len(data.of_split("val")))
        chunks = runner.run("features of proposals", run_chunk, [*plan_chunks(base, "train"), *plan_chunks(base, "val")])
        tuning = runner.run("tuning on the first seed", run_heads, [{**base, "detect": False, **cell} for cell in _grid()])
        chosen = _choose(tuning)
        cells = [
            {**base, "detect": True, **setting, "batch": batch, "seed": seed}
            for setting in chosen
            for batch in (BATCHES if setting["method"] != "softmax" else BATCHES[:1])
            for seed in range(seeds)
        ]
        paper = [
            {**base, "detect": True, **_setting(method, 0.1 if method == "pos-AP" else 1.0, rate, noise, "sgd"), "seed": seed}
            for method, rate in PAPER_RATES.items()
            for noise in NOISE
            for seed in range(seeds)
        ]
        return {
            "size": asdict(self),
            "boxes": {"training": _count(chunks, "train"), "tested": _count(chunks, "val")},
            "tuning": [_in_short(record) for record in tuning],
            "records": [_in_short(record) for record in runner.run("detectors", run_heads, cells)],
            "as in the paper": [_in_short(record) for record in runner.run("detectors, settings of the paper", run_heads, paper)],
        }

    def make_page(self, results: Results) -> Page:
        return make_page(self, results)


def _count(chunks: Sequence[Record], split: str) -> int:
    return sum(chunk["boxes"] for chunk in chunks if chunk["split"] == split)


def _setting(method: str, weight: float, rate: float, noise: float, optimizer: str = "adamw") -> Cell:
    return {
        "method": method,
        "weight": weight,
        "rate": rate,
        "noise": noise,
        "optimizer": optimizer,
        "batch": BATCHES[0],
        "seed": 0,
    }


def _grid() -> list[Cell]:
    one_vs_rest = [
        _setting(method, weight, rate, noise)
        for noise in NOISE
        for method in METHODS
        for weight in (EPSILONS if method == "pos-AP" else (1.0,))
        for rate in RATES
    ]
    return [*one_vs_rest, *(_setting("softmax", 1.0, rate, 0.0) for rate in RATES)]


def _choose(tuning: Sequence[Record]) -> list[Cell]:
    """Return the setting with the highest mean validation AP for each method and share of flipped labels."""
    best: dict[tuple[str, float], Record] = {}
    for record in tuning:
        key = (record["method"], record["noise"])
        if key not in best or fmean(record["validation"]) > fmean(best[key]["validation"]):
            best[key] = record
    keys = ("method", "weight", "rate", "noise", "optimizer")
    return [{key: record[key] for key in keys} for record in best.values()]


def _in_short(record: Record) -> Record:
    keys = ("method", "weight", "rate", "noise", "optimizer", "batch", "seed", "diverged", "validation", "test", "seconds")
    return {key: record[key] for key in keys if key in record}
