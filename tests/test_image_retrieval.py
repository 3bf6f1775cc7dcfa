"""The image retrieval example: its features, losses and head."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from taskloss.experiments.images import read_images
from taskloss.experiments.pretrained import EFFICIENTNET_LITE0, load_efficientnet_lite0
from taskloss.retrieval import retrieval_score
from tests.experiments.devkit import as_jpeg
from tests.experiments.stored_weights import efficientnet_weights, write_weights

REPOSITORY = Path(__file__).parent.parent
DATA = Path(os.environ.get("TASKLOSS_DATA", REPOSITORY.parent / "shared" / "data"))


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("image_retrieval", REPOSITORY / "examples" / "image_retrieval.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_features_are_made_once(example, tmp_path, capsys):
    shades, labels = (10, 200, 90), np.array([1, 0, 1], np.uint8)
    (tmp_path / example.IMAGES).parent.mkdir()
    np.savez(tmp_path / example.IMAGES, **as_jpeg([np.full((32, 32, 3), shade, np.uint8) for shade in shades]), labels=labels)
    write_weights(tmp_path / EFFICIENTNET_LITE0, efficientnet_weights(0))
    features, target = example.load_features(tmp_path, tmp_path / "cache")
    assert features.shape == (3, 1280)
    assert target.tolist() == [1, 0, 1]
    network = load_efficientnet_lite0(tmp_path)
    with torch.no_grad():
        expected = torch.cat([network.features(torch.full((1, 3, 32, 32), float(shade))) for shade in shades])
    torch.testing.assert_close(features, expected, atol=0.05, rtol=0.05)  # JPEG may change a shade by one.
    (tmp_path / EFFICIENTNET_LITE0).unlink()
    again, _ = example.load_features(tmp_path, tmp_path / "cache")
    assert torch.equal(again, features)
    assert "3 of 3 images" in capsys.readouterr().out


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
    if not (DATA / EFFICIENTNET_LITE0).exists():
        pytest.skip("no image data: set TASKLOSS_DATA to its folder")
    network = load_efficientnet_lite0(DATA)
    with np.load(DATA / example.IMAGES) as images:
        jpeg, offset, labels = images["jpeg"], images["offset"][:101], images["labels"][:100]
    with torch.no_grad():
        features = torch.cat([network.features(pixels) for pixels in read_images(jpeg, offset, size=50)])
    assert features.shape == (100, 1280)
    chance = retrieval_score(torch.randn(100, 8, generator=torch.Generator().manual_seed(0)), labels)
    assert retrieval_score(features, labels) > chance + 0.2
