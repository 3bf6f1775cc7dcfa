"""The pretrained networks: against plain numpy with random weights, and with the real weights where they are."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from taskloss.experiments.images import read_images
from taskloss.experiments.pretrained import (
    EFFICIENTNET_LITE0,
    SQUEEZENET,
    EfficientNetLite0,
    SameConv2d,
    SqueezeNet,
    load_efficientnet_lite0,
    load_squeezenet,
)
from tests.experiments.stored_weights import BLOCKS, FIRES, efficientnet_weights, squeezenet_weights, write_weights

DATA = Path(os.environ.get("TASKLOSS_DATA", Path(__file__).parents[3] / "shared" / "data"))
LOADERS = {SQUEEZENET: (load_squeezenet, squeezenet_weights), EFFICIENTNET_LITE0: (load_efficientnet_lite0, efficientnet_weights)}


# --- the oracle: numpy in float64, one product per entry of a kernel ------------------------------------------------------


def convolve(x: np.ndarray, weight: np.ndarray, stride: int, before: int, after: tuple[int, int]) -> np.ndarray:
    """Convolve ``(n, channels, h, w)`` padded by ``before`` at the top and left, ``after`` at the bottom and the right."""
    weight = weight.astype(np.float64)
    x = np.pad(x, [(0, 0), (0, 0), (before, after[0]), (before, after[1])])
    kernel = weight.shape[-1]
    height, width = ((size - kernel) // stride + 1 for size in x.shape[2:])
    result = 0.0
    for u in range(kernel):
        for v in range(kernel):
            part = x[:, :, u : u + stride * height : stride, v : v + stride * width : stride]
            depthwise = weight.shape[1] == 1 and x.shape[1] > 1
            own = weight[:, 0, u, v, None, None] * part if depthwise else np.einsum("oi,nihw->nohw", weight[:, :, u, v], part)
            result = result + own
    return result


def convolve_same(x: np.ndarray, weight: np.ndarray, stride: int) -> np.ndarray:
    kernel = weight.shape[-1]
    totals = [max((int(np.ceil(size / stride)) - 1) * stride + kernel - size, 0) for size in x.shape[2:]]
    assert totals[0] // 2 == totals[1] // 2, "the oracle pads rows and columns alike at the beginning"
    return convolve(x, weight, stride, totals[0] // 2, (totals[0] - totals[0] // 2, totals[1] - totals[1] // 2))


def squeezenet_oracle(weights: dict[str, np.ndarray], pixels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the activations of fire9 and the logits."""

    def layer(name: str, x: np.ndarray, stride: int = 1, padding: int = 0) -> np.ndarray:
        bias = weights[f"{name}.bias"][:, None, None]
        return np.maximum(convolve(x, weights[f"{name}.weight"], stride, padding, (padding, padding)) + bias, 0)

    def pool(x: np.ndarray) -> np.ndarray:
        # Rounded up: the last window may reach beyond the edge.
        height, width = (-(-(size - 3) // 2) + 1 for size in x.shape[2:])
        windows = [[x[:, :, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3].max((2, 3)) for j in range(width)] for i in range(height)]
        return np.array(windows).transpose(2, 3, 0, 1)

    blue_green_red = pixels[:, ::-1].astype(np.float64) - np.array([104, 117, 123])[:, None, None]
    x = layer("conv1", blue_green_red, stride=2)
    for number in range(2, 2 + len(FIRES)):
        if number in (2, 4, 6):
            x = pool(x)
        x = layer(f"fire{number}.squeeze1x1", x)
        x = np.concatenate([layer(f"fire{number}.expand1x1", x), layer(f"fire{number}.expand3x3", x, padding=1)], 1)
    return x, layer("conv10", x).mean((2, 3))


def efficientnet_oracle(weights: dict[str, np.ndarray], pixels: np.ndarray) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """Return the maps of the blocks, the features and the logits."""

    def layer(x: np.ndarray, convolution: str, norm: str, stride: int = 1) -> np.ndarray:
        x = convolve_same(x, weights[f"{convolution}.weight"], stride)
        names = ("running_mean", "running_var", "weight", "bias")
        mean, variance, scale, bias = (weights[f"{norm}.{name}"].astype(np.float64)[:, None, None] for name in names)
        return (x - mean) / np.sqrt(variance + 0.001) * scale + bias

    x = layer((pixels.astype(np.float64) - 127) / 128, "_conv_stem", "_bn0", 2).clip(0, 6)
    maps = []
    for number, (_, stride, channels, outputs) in enumerate(BLOCKS):
        block, inside = f"_blocks.{number}", x
        if number > 0:
            inside = layer(inside, f"{block}._expand_conv", f"{block}._bn0").clip(0, 6)
        inside = layer(inside, f"{block}._depthwise_conv", f"{block}._bn1", stride).clip(0, 6)
        inside = layer(inside, f"{block}._project_conv", f"{block}._bn2")
        x = x + inside if stride == 1 and channels == outputs else inside
        maps.append(x)
    features = layer(x, "_conv_head", "_bn1").clip(0, 6).mean((2, 3))
    return maps, features, features @ weights["_fc.weight"].astype(np.float64).T + weights["_fc.bias"]


# --- random weights -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("height", "width"), [(47, 47), (50, 63)])
def test_squeezenet_is_that_of_the_oracle(tmp_path, height, width):
    weights = squeezenet_weights(0)
    write_weights(tmp_path / SQUEEZENET, weights)
    network = load_squeezenet(tmp_path)
    pixels = np.random.default_rng(1).integers(0, 256, (2, 3, height, width), dtype=np.uint8)
    activations, logits = squeezenet_oracle(weights, pixels)
    with torch.no_grad():
        ours = network.activations(torch.from_numpy(pixels))
        assert ours.shape == activations.shape
        assert ours.shape[1] == network.width == 512
        np.testing.assert_allclose(ours, activations, atol=1e-4 * activations.max())
        features = network.features(torch.from_numpy(pixels))
        np.testing.assert_allclose(features, activations.mean((2, 3)), atol=1e-4 * activations.max())
        np.testing.assert_allclose(network(torch.from_numpy(pixels).float()), logits, atol=1e-4 * logits.max())


@pytest.mark.parametrize(("height", "width"), [(32, 32), (35, 35), (64, 32)])
def test_efficientnet_is_that_of_the_oracle(tmp_path, height, width):
    weights = efficientnet_weights(0)
    write_weights(tmp_path / EFFICIENTNET_LITE0, weights)
    network = load_efficientnet_lite0(tmp_path)
    pixels = np.random.default_rng(1).integers(0, 256, (2, 3, height, width), dtype=np.uint8)
    maps, features, logits = efficientnet_oracle(weights, pixels)
    with torch.no_grad():
        ours = list(network.maps(torch.from_numpy(pixels)))
        assert len(ours) == 16
        for one, other in zip(ours, maps, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-4 * np.abs(other).max())
        np.testing.assert_allclose(network.features(torch.from_numpy(pixels)), features, atol=1e-4)
        np.testing.assert_allclose(network(torch.from_numpy(pixels).float()), logits, atol=1e-4 * np.abs(logits).max())


def test_same_padding_by_hand():
    layer = SameConv2d(1, 1, 3, stride=2)
    torch.nn.init.ones_(layer.weight)
    image = torch.tensor([[[[1.0, 2.0, 3.0, 4.0]]]])
    # One row is padded above and one below, one column at the right only: windows (1, 2, 3) and (3, 4, 0).
    assert layer(image).tolist() == [[[[6.0, 7.0]]]]
    # Of three columns, one is padded on each side: windows (0, 1, 2) and (2, 3, 0).
    assert layer(image[..., :3]).tolist() == [[[[3.0, 5.0]]]]


def test_numbers_of_parameters():
    squeezenet, efficientnet = SqueezeNet(), EfficientNetLite0()
    assert sum(parameter.numel() for parameter in squeezenet.parameters()) == 1_235_496
    assert sum(parameter.numel() for parameter in efficientnet.parameters()) == 4_652_008
    # With the means and variances of the batch normalization, the file holds 4.69 million numbers.
    stored = [value for name, value in efficientnet.state_dict().items() if "num_batches_tracked" not in name]
    assert sum(value.numel() for value in stored) == 4_694_024
    norms = [module for module in efficientnet.modules() if isinstance(module, torch.nn.BatchNorm2d)]
    assert len(norms) == 49
    assert {module.eps for module in norms} == {1e-3}


@pytest.mark.parametrize("path", LOADERS, ids=["squeezenet", "efficientnet"])
def test_all_parameters_can_be_trained(tmp_path, path):
    load, make = LOADERS[path]
    write_weights(tmp_path / path, make(0))
    network = load(tmp_path)
    assert not network.training
    network.train()
    pixels = torch.randint(0, 256, (2, 3, 64, 64), generator=torch.Generator().manual_seed(0)).float()
    network(pixels).square().mean().backward()
    for name, parameter in network.named_parameters():
        assert parameter.requires_grad, name
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
        assert parameter.grad.abs().max() > 0, name


@pytest.mark.parametrize("path", LOADERS, ids=["squeezenet", "efficientnet"])
def test_missing_file_is_named(tmp_path, path):
    with pytest.raises(FileNotFoundError, match="ImageNet weights of (SqueezeNet 1.1|EfficientNet-Lite0)") as error:
        LOADERS[path][0](tmp_path)
    assert str(tmp_path / path) in str(error.value)


@pytest.mark.parametrize("path", LOADERS, ids=["squeezenet", "efficientnet"])
def test_incomplete_file_is_refused(tmp_path, path):
    load, make = LOADERS[path]
    weights = make(0)
    missing = next(iter(weights))
    del weights[missing]
    write_weights(tmp_path / path, weights)
    with pytest.raises(RuntimeError, match=missing.removeprefix("_")):
        load(tmp_path)


# --- the real weights -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", LOADERS, ids=["squeezenet", "efficientnet"])
def test_real_weights_recognize_dogs(path):
    """Shows that the file fits the network; the order of the channels and the mean hardly matter here, so the oracle tests them.

    On larger images, 88% and 96% of the dogs are in one of the 118 classes of dogs (README.md beside the weights); chance is 12%.
    """
    images = DATA / "stl10_train3996_96" / "stl10_train3996_96.npz"
    if not ((DATA / path).exists() and images.exists()):
        pytest.skip("no weights or images: set TASKLOSS_DATA to their folder")
    with np.load(images) as file:
        dogs = np.flatnonzero(file["labels"] == file["classes"].tolist().index("dog"))[:32]
        jpeg, offset = file["jpeg"], file["offset"]
    pixels = torch.cat([next(read_images(jpeg, offset[row : row + 2], size=1)) for row in dogs])
    with torch.no_grad():
        guess = LOADERS[path][0](DATA)(torch.nn.functional.interpolate(pixels, (160, 160), mode="bilinear")).argmax(1)
    assert ((guess >= 151) & (guess <= 268)).float().mean() > 0.6
