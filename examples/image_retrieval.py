"""Image retrieval: train a linear head on frozen features of real images, by the average precision of its own rankings.

    python examples/image_retrieval.py --data FOLDER [--cache FOLDER]

The data folder holds ``stl10_train3996_96/stl10_train3996_96.npz`` (STL-10 images as JPEG bytes, ``labels``) and
``pretrained/efficientnet_lite0_imagenet_fp16.npz`` (the weights of EfficientNet-Lite0 by layer name). Half of the images train
the head, the others test it: each test image is the query once, the other test images are ranked by cosine similarity, and those
of the same class are relevant. Three embeddings are compared: the raw features, a head trained with the supervised contrastive
loss (Khosla et al. 2020), and a head trained on direct average precision with every image of a batch as a query. Both heads start
from the same weights and see the same batches. Learning rate, temperature and epsilon were chosen on a part of the training half.

Both halves contain the same classes. For classes that the head has not seen, the raw features are the better embedding here: if
trained on five of the ten classes, both losses lower the mean average precision on the other five.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

import taskloss as tl
from taskloss.experiments.feature_cache import cached_arrays
from taskloss.experiments.images import read_images
from taskloss.experiments.pretrained import EFFICIENTNET_LITE0, load_efficientnet_lite0
from taskloss.retrieval import retrieval_loss, retrieval_score

IMAGES = Path("stl10_train3996_96", "stl10_train3996_96.npz")
WIDTH, BATCH, LEARNING_RATE = 64, 1000, 1e-3
DIRECT_AP = tl.DirectLoss("average_precision")


@torch.no_grad()
def make_features(data: Path) -> dict[str, np.ndarray]:
    """Compute the ``features``, ``(n, 1280)``, of all images; return them with the ``labels``, ``(n,)``."""
    network = load_efficientnet_lite0(data)
    with np.load(data / IMAGES, allow_pickle=False) as images:
        jpeg, offset, labels = images["jpeg"], images["offset"], images["labels"].astype(np.int64)
    features: list[Tensor] = []
    for pixels in read_images(jpeg, offset, size=50):
        features.append(network.features(pixels))
        print(f"\rfeatures of {sum(map(len, features)):>5} of {len(labels)} images", end="", flush=True)
    print()
    return {"features": torch.cat(features).numpy(), "labels": labels}


def load_features(data: Path, cache: Path | None) -> tuple[Tensor, Tensor]:
    """Return features and labels; read them from the cache folder if they are there, and store them there if not."""
    make = partial(make_features, data)
    arrays = make() if cache is None else cached_arrays(cache / "stl10_efficientnet_lite0.npz", make)
    return torch.from_numpy(arrays["features"]), torch.from_numpy(arrays["labels"])


def direct_ap(embeddings: Tensor, labels: Tensor) -> Tensor:
    """Return one minus the mean average precision of the batch, with each image as a query for the others."""
    return retrieval_loss(embeddings, labels, DIRECT_AP)


def supervised_contrastive(embeddings: Tensor, labels: Tensor, temperature: float = 0.2) -> Tensor:
    """Return the cross-entropy of retrieving images of the same class by a softmax over similarities (Khosla et al. 2020)."""
    unit = functional.normalize(embeddings, dim=1)
    diagonal = torch.eye(len(labels), dtype=torch.bool)
    log_probability = (unit @ unit.T / temperature).masked_fill(diagonal, -torch.inf).log_softmax(1)
    same = (labels[:, None] == labels) & ~diagonal
    losses = -torch.where(same, log_probability, 0.0).sum(1) / same.sum(1).clamp(min=1)
    return losses[same.any(1)].mean()


def train_head(features: Tensor, labels: Tensor, loss_of: Callable[[Tensor, Tensor], Tensor], steps: int, seed: int) -> nn.Linear:
    """Train a linear map of the features with AdamW on random batches."""
    torch.manual_seed(seed)
    head = nn.Linear(features.shape[1], WIDTH)
    optimizer = torch.optim.AdamW(head.parameters(), lr=LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        batch = torch.randperm(len(features))[:BATCH]
        optimizer.zero_grad()
        loss_of(head(features[batch]), labels[batch]).backward()
        optimizer.step()
        schedule.step()
    return head


def parse_arguments() -> argparse.Namespace:
    """Parse the command line; exit with advice if the data are missing."""
    parser = argparse.ArgumentParser(description="Image retrieval trained on direct average precision.")
    parser.add_argument("--data", type=Path, required=True, help=f"folder with {IMAGES} and {EFFICIENTNET_LITE0}")
    parser.add_argument("--cache", type=Path, help="folder to store the features in, so that a second run starts at once")
    parser.add_argument("--seeds", type=int, default=3, help="number of runs, each with its own initial weights and batches")
    parser.add_argument("--steps", type=int, default=100, help="training steps of each head")
    arguments = parser.parse_args()
    missing = [str(path) for path in (IMAGES, EFFICIENTNET_LITE0) if not (arguments.data / path).exists()]
    if missing:
        parser.error(f"--data {arguments.data} lacks {' and '.join(missing)}; see the top of this file for what it should hold")
    return arguments


def main() -> None:
    """Print the mean average precision of retrieval among the test images for each embedding."""
    arguments = parse_arguments()
    features, labels = load_features(arguments.data, arguments.cache)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(2016))
    train, test = order[: len(order) // 2], order[len(order) // 2 :]
    print(f"{'raw features':>24}: test mAP {retrieval_score(features[test], labels[test]):.4f}")
    for name, loss_of in {"supervised contrastive": supervised_contrastive, "direct AP": direct_ap}.items():
        begin, values = time.perf_counter(), []
        for seed in range(arguments.seeds):
            head = train_head(features[train], labels[train], loss_of, arguments.steps, seed)
            with torch.no_grad():
                values.append(retrieval_score(head(features[test]), labels[test]))
            print(f"{name:>24}: test mAP {values[-1]:.4f} (seed {seed})", flush=True)
        spread = f" +- {stdev(values):.4f}" if len(values) > 1 else ""
        print(f"{name:>24}: mean {mean(values):.4f}{spread}, {(time.perf_counter() - begin) / len(values):.0f} s per run")


if __name__ == "__main__":
    main()
