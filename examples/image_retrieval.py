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
import io
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional

import taskloss as tl
from taskloss.retrieval import retrieval_loss, retrieval_score

IMAGES = Path("stl10_train3996_96", "stl10_train3996_96.npz")
WEIGHTS = Path("pretrained", "efficientnet_lite0_imagenet_fp16.npz")
STRIDES = (1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1)
WIDTH, BATCH, LEARNING_RATE = 64, 1000, 1e-3
DIRECT_AP = tl.DirectLoss("average_precision")


class EfficientNetLite0:
    """The pretrained network up to its pooled features: it maps pixels ``(n, 3, h, w)`` in 0..255 to ``(n, 1280)``."""

    def __init__(self, weights: dict[str, np.ndarray]) -> None:
        self.weights = {name: torch.from_numpy(array).float() for name, array in weights.items()}

    def convolve(self, x: Tensor, layer: str, norm: str, stride: int = 1) -> Tensor:
        """Apply a convolution with TensorFlow's SAME padding and the batch normalization folded into it."""
        weight = self.weights[f"{layer}.weight"]
        scale = self.weights[f"{norm}.weight"] / (self.weights[f"{norm}.running_var"] + 1e-3).sqrt()
        bias = self.weights[f"{norm}.bias"] - self.weights[f"{norm}.running_mean"] * scale
        kernel = weight.shape[-1]
        padding = [max((-(-size // stride) - 1) * stride + kernel - size, 0) for size in (x.shape[3], x.shape[2])]
        padded = functional.pad(x, [part for total in padding for part in (total // 2, total - total // 2)])
        groups = x.shape[1] // weight.shape[1]
        return functional.conv2d(padded, weight * scale[:, None, None, None], bias, stride, groups=groups)

    def maps(self, images: Tensor) -> Iterator[Tensor]:
        """Yield the feature maps of the sixteen blocks, one after another, for pixels ``(n, 3, h, w)`` in 0..255."""
        x = functional.relu6(self.convolve((images - 127) / 128, "_conv_stem", "_bn0", 2))
        for number, stride in enumerate(STRIDES):
            block, inside = f"_blocks.{number}", x
            if number > 0:
                inside = functional.relu6(self.convolve(inside, f"{block}._expand_conv", f"{block}._bn0"))
            inside = functional.relu6(self.convolve(inside, f"{block}._depthwise_conv", f"{block}._bn1", stride))
            inside = self.convolve(inside, f"{block}._project_conv", f"{block}._bn2")
            x = x + inside if x.shape == inside.shape else inside
            yield x

    @torch.no_grad()
    def __call__(self, images: Tensor) -> Tensor:
        *_, x = self.maps(images)
        return functional.relu6(self.convolve(x, "_conv_head", "_bn1")).mean((2, 3))


def read_images(jpeg: np.ndarray, offset: np.ndarray, size: int) -> Iterator[Tensor]:
    """Yield batches of at most ``size`` images, ``(batch, 3, h, w)``; image i is ``jpeg[offset[i]:offset[i + 1]]``."""
    for first in range(0, len(offset) - 1, size):
        bounds = offset[first : first + size + 1]
        files = (jpeg[begin:end].tobytes() for begin, end in pairwise(bounds))
        pixels = np.stack([np.asarray(Image.open(io.BytesIO(file)).convert("RGB")) for file in files])
        yield torch.from_numpy(pixels).permute(0, 3, 1, 2).float()


def make_features(data: Path) -> tuple[np.ndarray, np.ndarray]:
    """Compute the features ``(n, 1280)`` of all images; return them with the labels ``(n,)``."""
    with np.load(data / WEIGHTS, allow_pickle=False) as weights:
        network = EfficientNetLite0(dict(weights))
    with np.load(data / IMAGES, allow_pickle=False) as images:
        jpeg, offset, labels = images["jpeg"], images["offset"], images["labels"].astype(np.int64)
    features: list[Tensor] = []
    for pixels in read_images(jpeg, offset, size=50):
        features.append(network(pixels))
        print(f"\rfeatures of {sum(map(len, features)):>5} of {len(labels)} images", end="", flush=True)
    print()
    return torch.cat(features).numpy(), labels


def load_features(data: Path, cache: Path | None) -> tuple[Tensor, Tensor]:
    """Return features and labels; read them from the cache folder if they are there, and store them there if not."""
    stored = None if cache is None else cache / "stl10_efficientnet_lite0.npz"
    if stored is not None and stored.exists():
        with np.load(stored, allow_pickle=False) as arrays:
            return torch.from_numpy(arrays["features"]), torch.from_numpy(arrays["labels"])
    features, labels = make_features(data)
    if stored is not None:
        stored.parent.mkdir(parents=True, exist_ok=True)
        np.savez(stored, features=features, labels=labels)
    return torch.from_numpy(features), torch.from_numpy(labels)


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
    parser.add_argument("--data", type=Path, required=True, help=f"folder with {IMAGES} and {WEIGHTS}")
    parser.add_argument("--cache", type=Path, help="folder to store the features in, so that a second run starts at once")
    parser.add_argument("--seeds", type=int, default=3, help="number of runs, each with its own initial weights and batches")
    parser.add_argument("--steps", type=int, default=100, help="training steps of each head")
    arguments = parser.parse_args()
    missing = [str(path) for path in (IMAGES, WEIGHTS) if not (arguments.data / path).exists()]
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
