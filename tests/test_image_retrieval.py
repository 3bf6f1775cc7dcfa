"""The image retrieval example: its network, images, losses and head."""

from __future__ import annotations

import importlib.util
import io
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from taskloss.retrieval import retrieval_score

REPOSITORY = Path(__file__).parent.parent
DATA = Path(os.environ.get("TASKLOSS_DATA", REPOSITORY.parent / "shared" / "data"))


@pytest.fixture(scope="module")
def example() -> ModuleType:
    pytest.importorskip("PIL", reason="the example reads JPEG files with Pillow")
    spec = importlib.util.spec_from_file_location("image_retrieval", REPOSITORY / "examples" / "image_retrieval.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_network_takes_any_size(example):
    generator = np.random.default_rng(0)
    shapes = {"_conv_stem": ((8, 3, 3, 3), "_bn0"), "_conv_head": ((12, 8, 1, 1), "_bn1")}
    for number in range(len(example.STRIDES)):
        block = f"_blocks.{number}"
        shapes[f"{block}._expand_conv"] = ((8, 8, 1, 1), f"{block}._bn0")
        shapes[f"{block}._depthwise_conv"] = ((8, 1, 5, 5), f"{block}._bn1")
        shapes[f"{block}._project_conv"] = ((8, 8, 1, 1), f"{block}._bn2")
    weights = {}
    for layer, (shape, norm) in shapes.items():
        weights[f"{layer}.weight"] = generator.normal(size=shape).astype(np.float16)
        weights |= {f"{norm}.{name}": np.ones(shape[0], np.float32) for name in ("weight", "bias", "running_mean", "running_var")}
    network = example.EfficientNetLite0(weights)
    for height, width in ((96, 96), (33, 50)):
        features = network(torch.zeros(2, 3, height, width))
        assert features.shape == (2, 12)
        assert torch.equal(features[0], features[1])


def test_reads_images(example):
    files = []
    for shade in (10, 200, 90):
        file = io.BytesIO()
        example.Image.new("RGB", (16, 8), (shade, shade, shade)).save(file, "JPEG")
        files.append(np.frombuffer(file.getvalue(), np.uint8))
    offset = np.cumsum([0, *map(len, files)])
    batches = list(example.read_images(np.concatenate(files), offset, size=2))
    assert [tuple(batch.shape) for batch in batches] == [(2, 3, 8, 16), (1, 3, 8, 16)]
    assert torch.cat(batches).mean((1, 2, 3)).round().tolist() == [10, 200, 90]


def test_contrastive_loss_by_brute_force(example):
    embeddings = torch.randn(12, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    labels = torch.tensor([-7, 0, 5, 0, 5, -7, -7, 0, 5, 5, 0, 99])
    unit = torch.nn.functional.normalize(embeddings, dim=1)
    losses = []
    for i in range(12):
        others = [j for j in range(12) if j != i]
        logits = torch.stack([unit[i] @ unit[j] / 0.2 for j in others]).log_softmax(0)
        same_class = [logits[k] for k, j in enumerate(others) if labels[j] == labels[i]]
        if same_class:
            losses.append(-torch.stack(same_class).mean())
    torch.testing.assert_close(example.supervised_contrastive(embeddings, labels), torch.stack(losses).mean())


@pytest.mark.parametrize("loss", ["direct_ap", "supervised_contrastive"])
def test_head_learns(example, loss):
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(200) % 5
    features = torch.randn(200, 40, generator=generator)
    features[:, :5] += 2.0 * torch.nn.functional.one_hot(labels, 5)
    head = example.train_head(features[:100], labels[:100], getattr(example, loss), steps=200, seed=0)
    with torch.no_grad():
        after = retrieval_score(head(features[100:]), labels[100:])
    assert after > retrieval_score(features[100:], labels[100:]) + 0.05


def test_says_what_data_it_needs(tmp_path):
    command = [sys.executable, REPOSITORY / "examples" / "image_retrieval.py", "--data", tmp_path]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 2
    assert "lacks" in result.stderr
    assert "efficientnet_lite0" in result.stderr


def test_features_of_real_images(example):
    if not (DATA / example.WEIGHTS).exists():
        pytest.skip("no image data: set TASKLOSS_DATA to its folder")
    with np.load(DATA / example.WEIGHTS) as weights, np.load(DATA / example.IMAGES) as images:
        network = example.EfficientNetLite0(dict(weights))
        jpeg, offset, labels = images["jpeg"], images["offset"][:101], images["labels"][:100]
    features = torch.cat([network(pixels) for pixels in example.read_images(jpeg, offset, size=50)])
    assert features.shape == (100, 1280)
    chance = retrieval_score(torch.randn(100, 8, generator=torch.Generator().manual_seed(0)), labels)
    assert retrieval_score(features, labels) > chance + 0.2
