"""Two small networks trained on ImageNet, as modules that can be fine-tuned: SqueezeNet 1.1 and EfficientNet-Lite0.

Both take RGB pixels ``(n, 3, h, w)`` in 0..255, of any dtype, and normalize them by themselves. The loaders return networks in
evaluation mode. Dropout in front of the last layer, which both had in training, is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

SQUEEZENET = Path("pretrained", "squeezenet_v1.1_imagenet.npz")
"""Where the weights of SqueezeNet are, below the data folder."""
EFFICIENTNET_LITE0 = Path("pretrained", "efficientnet_lite0_imagenet_fp16.npz")
"""Where the weights of EfficientNet-Lite0 are, below the data folder."""
CLASSES = 1000
"""Number of classes of ImageNet."""


# --- SqueezeNet ---------------------------------------------------------------------------------------------------------


class Fire(nn.Module):
    """A fire block: a 1x1 convolution to few channels, then 1x1 and 3x3 convolutions whose outputs are concatenated."""

    def __init__(self, channels: int, squeezed: int, expanded: int) -> None:
        super().__init__()
        self.squeeze1x1 = nn.Conv2d(channels, squeezed, 1)
        self.expand1x1 = nn.Conv2d(squeezed, expanded, 1)
        self.expand3x3 = nn.Conv2d(squeezed, expanded, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.squeeze1x1(x))
        return torch.cat([torch.relu(self.expand1x1(x)), torch.relu(self.expand3x3(x))], 1)


class SqueezeNet(nn.Module):
    """SqueezeNet 1.1 (Iandola et al. 2016), 1,235,496 parameters, trained on BGR images of 227 by 227 pixels minus their mean."""

    width = 512
    """Number of features."""
    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor([104.0, 117.0, 123.0])[:, None, None], persistent=False)
        self.conv1 = nn.Conv2d(3, 64, 3, stride=2)
        self.fire2, self.fire3 = Fire(64, 16, 64), Fire(128, 16, 64)
        self.fire4, self.fire5 = Fire(128, 32, 128), Fire(256, 32, 128)
        self.fire6, self.fire7 = Fire(256, 48, 192), Fire(384, 48, 192)
        self.fire8, self.fire9 = Fire(384, 64, 256), Fire(512, 64, 256)
        self.conv10 = nn.Conv2d(self.width, CLASSES, 1)

    def activations(self, pixels: Tensor) -> Tensor:
        """Return the output of the last fire block, ``(n, 512, height, width)`` at stride 16."""
        x = torch.relu(self.conv1(pixels.to(self.mean.dtype).flip(1) - self.mean))
        x = self.fire3(self.fire2(_halve(x)))
        x = self.fire5(self.fire4(_halve(x)))
        return self.fire9(self.fire8(self.fire7(self.fire6(_halve(x)))))

    def features(self, pixels: Tensor) -> Tensor:
        """Return the mean of the activations over the image, ``(n, 512)``."""
        return self.activations(pixels).mean((2, 3))

    def forward(self, pixels: Tensor) -> Tensor:
        """Return the logits of the classes of ImageNet, ``(n, 1000)``; none is negative, as the last layer has a ReLU."""
        return torch.relu(self.conv10(self.activations(pixels))).mean((2, 3))


def _halve(x: Tensor) -> Tensor:
    return functional.max_pool2d(x, 3, 2, ceil_mode=True)


# --- EfficientNet-Lite0 -------------------------------------------------------------------------------------------------

# For each block: channels of its output, side of the depthwise kernel, stride.
_BLOCKS = (
    (16, 3, 1),
    *((24, 3, 2), (24, 3, 1)),
    *((40, 5, 2), (40, 5, 1)),
    *((80, 3, 2), (80, 3, 1), (80, 3, 1)),
    *((112, 5, 1), (112, 5, 1), (112, 5, 1)),
    *((192, 5, 2), (192, 5, 1), (192, 5, 1), (192, 5, 1)),
    (320, 3, 1),
)
_EXPANSION = 6
"""How many times more channels a block has inside than at its input; the first block has as many."""


class SameConv2d(nn.Conv2d):
    """A convolution without bias and with TensorFlow's SAME padding.

    The output has ``ceil(size / stride)`` rows and columns. Of an odd number of padded rows, the additional one is at the end, so
    ``nn.Conv2d(padding=1)`` differs from it at stride 2.
    """

    def __init__(self, channels: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__(channels, outputs, kernel, stride, groups=groups, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        stride, kernel = self.stride[0], self.kernel_size[0]
        totals = [max((-(-size // stride) - 1) * stride + kernel - size, 0) for size in (x.shape[3], x.shape[2])]
        return super().forward(functional.pad(x, [part for total in totals for part in (total // 2, total - total // 2)]))


def _batch_norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3, momentum=0.01)


class InvertedResidual(nn.Module):
    """A block of a mobile network: expand the channels, filter each one, project; add the input if the shape is the same."""

    def __init__(self, channels: int, outputs: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        inside = channels * expansion
        self.expand_conv = SameConv2d(channels, inside, 1) if expansion > 1 else None
        self.bn0 = _batch_norm(inside) if expansion > 1 else None
        self.depthwise_conv = SameConv2d(inside, inside, kernel, stride, groups=inside)
        self.bn1 = _batch_norm(inside)
        self.project_conv = SameConv2d(inside, outputs, 1)
        self.bn2 = _batch_norm(outputs)
        self.is_residual = stride == 1 and channels == outputs

    def forward(self, x: Tensor) -> Tensor:
        inside = x
        if self.expand_conv is not None and self.bn0 is not None:
            inside = functional.relu6(self.bn0(self.expand_conv(inside)))
        inside = functional.relu6(self.bn1(self.depthwise_conv(inside)))
        inside = self.bn2(self.project_conv(inside))
        return x + inside if self.is_residual else inside


class EfficientNetLite0(nn.Module):
    """EfficientNet-Lite0 (Tan and Le 2019; without squeeze-and-excitation), 4,652,008 parameters.

    Trained on images of 224 by 224 pixels; smaller ones work.
    """

    width = 1280
    """Number of features."""

    def __init__(self) -> None:
        super().__init__()
        self.conv_stem, self.bn0 = SameConv2d(3, 32, 3, stride=2), _batch_norm(32)
        self.blocks = nn.ModuleList()
        channels, expansion = 32, 1
        for outputs, kernel, stride in _BLOCKS:
            self.blocks.append(InvertedResidual(channels, outputs, kernel, stride, expansion))
            channels, expansion = outputs, _EXPANSION
        self.conv_head, self.bn1 = SameConv2d(channels, self.width, 1), _batch_norm(self.width)
        self.fc = nn.Linear(self.width, CLASSES)

    def maps(self, pixels: Tensor) -> Iterator[Tensor]:
        """Yield the feature maps ``(n, channels, height, width)`` of the sixteen blocks, one after another."""
        x = (pixels.to(self.conv_stem.weight.dtype) - 127) / 128
        x = functional.relu6(self.bn0(self.conv_stem(x)))
        for block in self.blocks:
            x = block(x)
            yield x

    def features(self, pixels: Tensor) -> Tensor:
        """Return the mean of the last layer over the image, ``(n, 1280)``."""
        for x in self.maps(pixels):  # noqa: B007 (the last map is used; without a gradient, the others are freed at once)
            pass
        return functional.relu6(self.bn1(self.conv_head(x))).mean((2, 3))

    def forward(self, pixels: Tensor) -> Tensor:
        """Return the logits of the classes of ImageNet, ``(n, 1000)``."""
        return self.fc(self.features(pixels))


# --- the weights --------------------------------------------------------------------------------------------------------


def load_squeezenet(data: Path) -> SqueezeNet:
    """Load SqueezeNet 1.1 with its ImageNet weights from ``data / SQUEEZENET``, in evaluation mode."""
    network = SqueezeNet()
    network.load_state_dict(_read_weights(data / SQUEEZENET, "SqueezeNet 1.1", "conv1.weight, fire2.squeeze1x1.weight"))
    return network.eval()


def load_efficientnet_lite0(data: Path) -> EfficientNetLite0:
    """Load EfficientNet-Lite0 with its ImageNet weights from ``data / EFFICIENTNET_LITE0``, in evaluation mode."""
    network = EfficientNetLite0()
    stored = _read_weights(data / EFFICIENTNET_LITE0, "EfficientNet-Lite0", "_conv_stem.weight, _bn0.weight")
    # The names of the file begin with underscores: _blocks.0._bn1.weight is blocks.0.bn1.weight here.
    weights = {".".join(part.removeprefix("_") for part in name.split(".")): array for name, array in stored.items()}
    network.load_state_dict(weights)
    return network.eval()


def _read_weights(path: Path, network: str, names: str) -> Mapping[str, Tensor]:
    if not path.is_file():
        raise FileNotFoundError(
            f"there is no file {path}; it should hold the ImageNet weights of {network}, one array per layer ({names}, ...)"
        )
    with np.load(path, allow_pickle=False) as file:
        return {name: torch.from_numpy(array).float() for name, array in file.items()}
