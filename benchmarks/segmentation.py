"""Segmentation of PASCAL VOC 2012: test IoU of heads trained on direct IoU, its surrogates and cross-entropy.

The six classes with the most images are each a binary mask against everything else. The images (long side 192, padded
to a square; the padding is void) go once through a frozen EfficientNet-Lite0; a small head on its maps of strides 8, 16 and 32 is
trained. It scores and learns at stride 4; IoU is measured at stride 2, the scores resized bilinearly.

Every run begins with the weights of the same five epochs of cross-entropy, as the positive update needs some true positives, and
goes on for four epochs with its own loss; batches, optimizer and budget are the same for all (AdamW, cosine decay):

- direct IoU: ``DirectLoss(Jaccard())``, pooled over the batch with either update, or one labeling per image;
- hinge IoU: ``StructuredHingeLoss(Jaccard())``, pooled;
- soft Jaccard: the intersection and union of the probabilities, pooled (Rahman and Wang 2016);
- Lovasz hinge: the convex extension of the IoU at the hinge errors, pooled (Berman et al. 2018), written from its formula;
- cross-entropy of each pixel.

Validation IoU (a quarter of the official training images), at score 0, chooses one of four settings of each method on the first
seed, which is kept; the other seeds run with them. Some runs on the same validation images chose the rate of the warm-up, the
range of the grids (epsilon 1 was worse than 4 for the positive update) and the update for single images. Test: the official
validation images. Reported for each class: IoU pooled over the test set, as VOC defines it, and the mean IoU of the images that
show the class; at score 0, and at the thresholds (one per class) that are best for the pooled IoU of the validation images.

    pip install -e '.[cli,estimators,experiments]'
    python -m benchmarks.segmentation --data FOLDER --cache FOLDER --output segmentation.json

FOLDER holds ``voc2012_det_seg_192/voc2012_det_seg_192.npz`` (JPEG bytes and masks) and
``pretrained/efficientnet_lite0_imagenet_fp16.npz``. The features (300 MB) are kept in the cache; finished runs are kept beside
the output in a ``.jsonl`` file, and a second call goes on from there.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from benchmarks.cells import Cells, Record
from benchmarks.fscore import best_threshold
from benchmarks.voc import SIDE, VOID, Images, Parts, check_data, read_parts
from rich.progress import Progress
from torch import Tensor, nn

import taskloss as tl

CLASSES = ("person", "chair", "cat", "dog", "car", "bird")
WIDTH, BATCH = 32, 32
STRIDE, TEST_STRIDE = 4, 2
WARM_UP, EPOCHS = 5, 4
WARM_UP_RATE = 1e-2

Settings = dict[str, Any]
Criterion = Callable[[Tensor, Tensor], Tensor]


class Head(nn.Module):
    """A small segmentation head with one score per class.

    Each map is reduced to WIDTH channels; their sum at the finest resolution goes through a 3x3 layer, and the scores are
    resized to STRIDE.
    """

    def __init__(self, channels: list[int], classes: int) -> None:
        super().__init__()
        self.reduce = nn.ModuleList(nn.Conv2d(count, WIDTH, 1) for count in channels)
        self.mix = nn.Conv2d(WIDTH, WIDTH, 3, padding=1)
        self.score = nn.Conv2d(WIDTH, classes, 1)

    def forward(self, maps: tuple[Tensor, ...]) -> Tensor:
        reduced = [layer(part.float()) for layer, part in zip(self.reduce, maps, strict=True)]
        hidden = sum(resize(part, reduced[0].shape[-1]) for part in reduced)
        return resize(self.score(self.mix(hidden.relu()).relu()), SIDE // STRIDE)


def resize(maps: Tensor, side: int) -> Tensor:
    """Resize square maps bilinearly to a side."""
    return nn.functional.interpolate(maps, size=(side, side), mode="bilinear", align_corners=False)


def one_mask_per_class(masks: Tensor) -> Tensor:
    """Turn class indices ``(n, h, w)`` into masks ``(n, C, h, w)`` of 0, 1 and VOID."""
    each = masks[:, None] == torch.arange(1, 1 + len(CLASSES), dtype=masks.dtype)[:, None, None]
    return each.to(torch.uint8).masked_fill_(masks[:, None] == VOID, VOID)


def at_stride(masks: Tensor, stride: int) -> Tensor:
    """Return the middle pixel of every square of ``stride`` pixels."""
    return masks[:, stride // 2 :: stride, stride // 2 :: stride]


def cross_entropy(scores: Tensor, target: Tensor) -> Tensor:
    """Return the logistic loss, mean over pixels and classes."""
    known = target != VOID
    return nn.functional.binary_cross_entropy_with_logits(scores[known], target[known].to(scores.dtype))


def soft_jaccard(scores: Tensor, target: Tensor) -> Tensor:
    """Return one minus ``sum p y / sum (p + y - p y)`` over the pixels of the batch, mean over the classes."""
    known, truth = target != VOID, (target == 1).to(scores.dtype)
    probability = scores.sigmoid() * known
    intersection = (probability * truth).sum((0, 2, 3))
    union = (probability + truth).sum((0, 2, 3)) - intersection
    return (1 - intersection / union).mean()


def lovasz_hinge(scores: Tensor, target: Tensor) -> Tensor:
    """Return the convex extension of the Jaccard loss at the hinge errors (Berman et al. 2018), mean over the classes.

    With the errors ``m_i = max(0, 1 - (2 y_i - 1) s_i)`` in falling order, the loss is ``sum_i m_i (L_i - L_{i-1})``, where L_i
    is one minus the intersection over union when the first i pixels are the wrong ones.
    """
    losses = []
    for score, truth in zip(scores.movedim(1, 0), target.movedim(1, 0), strict=True):
        score, truth = score[truth != VOID], truth[truth != VOID].to(score.dtype)
        errors, order = torch.sort(1 - (2 * truth - 1) * score, descending=True)
        right = truth[order]
        missed, wrong = right.cumsum(0), (1 - right).cumsum(0)
        values = 1 - (right.sum() - missed) / (right.sum() + wrong)
        losses.append(errors.relu() @ values.diff(prepend=values.new_zeros(1)))
    return torch.stack(losses).mean()


def of_task(criterion: nn.Module, *, pooled: bool) -> Criterion:
    """Apply a loss of this library to the masks of a batch, pooled or with one labeling per image and class."""
    dim = (0, 2, 3) if pooled else (2, 3)
    return lambda scores, target: criterion(scores, target, dim=dim, ignore_index=VOID)


def direct(settings: Settings, *, update: str, pooled: bool = True) -> Criterion:
    """Return direct IoU with the epsilon of the settings."""
    return of_task(tl.DirectLoss(tl.Jaccard(), epsilon=settings["epsilon"], update=update), pooled=pooled)


METHODS: dict[str, Callable[[Settings], Criterion]] = {
    "direct IoU, positive": functools.partial(direct, update="positive"),
    "direct IoU, negative": functools.partial(direct, update="negative"),
    "direct IoU, per image": functools.partial(direct, update="positive", pooled=False),
    "hinge IoU": lambda _: of_task(tl.StructuredHingeLoss(tl.Jaccard()), pooled=True),
    "soft Jaccard": lambda _: soft_jaccard,
    "Lovasz hinge": lambda _: lovasz_hinge,
    "cross-entropy": lambda _: cross_entropy,
}
DIRECT_GRID = {"learning_rate": (3e-3, 1e-2), "epsilon": (4.0, 10.0)}
PLAIN_GRID = {"learning_rate": (1e-3, 3e-3, 1e-2, 3e-2)}


def fit(head: Head, criterion: Criterion, images: Images, rate: float, epochs: int, seed: int, *, decay: bool) -> None:
    """Train the head in place by AdamW on random batches."""
    optimizer = torch.optim.AdamW(head.parameters(), lr=rate)
    generator = torch.Generator().manual_seed(seed)
    batches = [index for _ in range(epochs) for index in torch.randperm(len(images.masks), generator=generator).split(BATCH)]
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, len(batches))
    for index in batches:
        batch = images.rows(index)
        optimizer.zero_grad()
        criterion(head(batch.maps), one_mask_per_class(at_stride(batch.masks, STRIDE))).backward()
        optimizer.step()
        if decay:
            schedule.step()


@torch.no_grad()
def score_images(head: Head, images: Images) -> Tensor:
    """Return scores ``(n, C, side, side)`` at STRIDE."""
    return torch.cat([head(images.rows(index).maps) for index in torch.arange(len(images.masks)).split(128)])


def evaluate(scores: Tensor, masks: Tensor, thresholds: Tensor) -> dict[str, list[float]]:
    """Return the IoU of each class at TEST_STRIDE: pooled over the images, and the mean over images that show the class."""
    parts = []
    for batch_scores, batch_masks in zip(scores.split(64), at_stride(masks, TEST_STRIDE).split(64), strict=True):
        target = one_mask_per_class(batch_masks)
        predicted = (resize(batch_scores, SIDE // TEST_STRIDE) > thresholds[:, None, None]) & (target != VOID)
        truth = target == 1
        # Sums of float32 are exact up to 2^24 and much faster than those of bool.
        parts.append(torch.stack([part.float().sum((2, 3)) for part in (predicted & truth, predicted | truth, truth)]))
    intersection, union, size = torch.cat(parts, 1).double()
    each = torch.where(size > 0, intersection / union, 0.0)
    return {"pooled": (intersection.sum(0) / union.sum(0)).tolist(), "per_image": (each.sum(0) / (size > 0).sum(0)).tolist()}


def best_thresholds(scores: Tensor, masks: Tensor) -> Tensor:
    """Return, per class, the threshold of the highest pooled IoU at STRIDE; it is that of F1, since IoU = F1 / (2 - F1)."""
    target = one_mask_per_class(at_stride(masks, STRIDE))
    pairs = zip(scores.movedim(1, 0), target.movedim(1, 0), strict=True)
    return torch.tensor([best_threshold(score[truth != VOID], truth[truth != VOID])[1] for score, truth in pairs])


class Runs:
    """All the runs on one set of images, each starting from the warm-up of its seed."""

    def __init__(self, parts: Parts, warm_up: int, epochs: int) -> None:
        self.parts, self.warm_up, self.epochs = parts, warm_up, epochs
        self.warm_weights = functools.cache(self._warm_weights)

    def _new_head(self, seed: int) -> Head:
        torch.manual_seed(seed)
        return Head([maps.shape[1] for maps in self.parts.training.maps], len(CLASSES))

    def _warm_weights(self, seed: int) -> dict[str, Tensor]:
        head = self._new_head(seed)
        fit(head, cross_entropy, self.parts.training, WARM_UP_RATE, self.warm_up, seed, decay=False)
        return head.state_dict()

    def run_once(self, method: str, settings: Settings, seed: int) -> Record:
        """Train one head; return its IoU on validation and test images, at score 0 and at the thresholds chosen on validation."""
        head = self._new_head(seed)
        head.load_state_dict(self.warm_weights(seed))
        criterion = METHODS[method](settings)
        fit(head, criterion, self.parts.training, settings["learning_rate"], self.epochs, 1000 + seed, decay=True)
        zero, scores = torch.zeros(len(CLASSES)), score_images(head, self.parts.validation)
        thresholds = best_thresholds(scores, self.parts.validation.masks)
        record: Record = {"thresholds": thresholds.tolist(), "validation": evaluate(scores, self.parts.validation.masks, zero)}
        scores = score_images(head, self.parts.test)
        record["test"] = evaluate(scores, self.parts.test.masks, zero)
        record["test_tuned"] = evaluate(scores, self.parts.test.masks, thresholds)
        return record


def all_settings(method: str) -> list[Settings]:
    """Return every setting of the grid of a method."""
    grid = DIRECT_GRID if method.startswith("direct") else PLAIN_GRID
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def run_method(method: str, seeds: int, run: Callable[[str, Settings, int], Record]) -> list[Record]:
    """Choose the settings on the first seed by the mean pooled IoU of the validation images; return one record per seed."""
    trials = [run(method, settings, 0) for settings in all_settings(method)]
    best = max(trials, key=lambda trial: statistics.mean(trial["validation"]["pooled"]))
    return [best, *(run(method, best["settings"], seed) for seed in range(1, seeds))]


def summarize(records: list[Record], part: str, kind: str) -> dict[str, Any]:
    """Return means over the seeds: of each class, and of the mean over classes with its standard deviation."""
    by_seed = [statistics.mean(record[part][kind]) for record in records]
    classes = [statistics.mean(values) for values in zip(*(record[part][kind] for record in records), strict=True)]
    spread = statistics.stdev(by_seed) if len(by_seed) > 1 else None
    return {"mean": statistics.mean(by_seed), "over_seeds": spread, "classes": dict(zip(CLASSES, classes, strict=True))}


def print_table(summary: dict[str, dict[str, Any]], part: str, kind: str, title: str) -> None:
    """Print a table of methods by classes, in percent."""
    print(f"\n{title:<52}{'mean':>6}{'seeds':>9}" + "".join(f"{name:>8}" for name in CLASSES))
    for method, row in summary.items():
        values = row[part][kind]
        spread = "-" if values["over_seeds"] is None else f"+- {100 * values['over_seeds']:.2f}"
        line = f"{method:<52}{100 * values['mean']:>6.2f}{spread:>9}"
        print(line + "".join(f"{100 * value:>8.2f}" for value in values["classes"].values()))


TABLES = {
    ("test", "pooled"): "test IoU in %, pooled, at score 0",
    ("test_tuned", "pooled"): "test IoU in %, pooled, thresholds of validation",
    ("test", "per_image"): "test IoU in %, mean of images, at score 0",
    ("test_tuned", "per_image"): "test IoU in %, mean of images, thresholds",
    ("validation", "pooled"): "validation IoU in %, pooled, at score 0",
}


def main() -> None:
    """Run every method, print the tables and save the records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder that holds the images and the pretrained network")
    parser.add_argument("--cache", type=Path, help="folder to keep the features in")
    parser.add_argument("--seeds", type=int, default=3, help="heads of each method")
    parser.add_argument("--output", type=Path, help="JSON file for the tables and records")
    parser.add_argument("--quick", action="store_true", help="a few images, one epoch, one seed: does it run?")
    arguments = parser.parse_args()
    check_data(arguments.data)
    torch.set_num_threads(1)
    start = time.perf_counter()
    limit, warm_up, epochs, seeds = (24, 1, 1, 1) if arguments.quick else (None, WARM_UP, EPOCHS, arguments.seeds)
    cells = Cells(arguments.output and arguments.output.with_suffix(".jsonl"))
    results: dict[str, list[Record]] = {}
    with Progress() as progress:
        bar = progress.add_task("features")
        parts = read_parts(
            *(arguments.data, arguments.cache, CLASSES, limit),
            lambda done, total: progress.update(bar, advance=done, total=total),
        )
        runs = Runs(parts, warm_up, epochs)
        bar = progress.add_task("", total=sum(len(all_settings(method)) + seeds - 1 for method in METHODS))

        def run(method: str, settings: Settings, seed: int) -> Record:
            progress.update(bar, description=method)
            cell = {"method": method, "settings": settings, "seed": seed, "epochs": [warm_up, epochs], "images": limit}
            record = cells.run(cell, lambda: runs.run_once(method, settings, seed))
            progress.advance(bar)
            return record

        for method in METHODS:
            results[method] = run_method(method, seeds, run)
    summary: dict[str, dict[str, Any]] = {method: {} for method in METHODS}
    for method, records in results.items():
        print(f"{method}: {records[0]['settings']}, {statistics.mean(record['seconds'] for record in records):.0f} s per run")
        for part, kind in TABLES:
            summary[method].setdefault(part, {})[kind] = summarize(records, part, kind)
    for (part, kind), title in TABLES.items():
        print_table(summary, part, kind, title)
    print(f"{time.perf_counter() - start:.0f} s in all")
    cells.write_summary(arguments.output, summary)


if __name__ == "__main__":
    main()
