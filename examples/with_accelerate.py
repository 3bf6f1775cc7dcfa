"""Accelerate: train a network on average precision, in one process or in several.

    pip install -e '.[examples]'
    python examples/with_accelerate.py
    torchrun --nproc-per-node 2 examples/with_accelerate.py

The batch size is that of all processes together, and the loss ranks the samples of all processes, so both commands train the same
network, up to rounding. The reported value is the exact average precision of all test samples. On the CPU, processes talk over
gloo.
"""

from __future__ import annotations

import argparse

import torch
from accelerate import Accelerator, DataLoaderConfiguration
from accelerate.utils import set_seed
from safetensors.torch import save_file
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import taskloss as tl


def make_data(n: int, generator: torch.Generator) -> TensorDataset:
    """Return points on two rings and their labels; the positives, 5%, are on the inner ring."""
    target = torch.rand(n, generator=generator) < 0.05
    radius = torch.where(target, 1.0, 2.0) + 0.35 * torch.randn(n, generator=generator)
    angle = 6.2832 * torch.rand(n, generator=generator)
    return TensorDataset(torch.stack([radius * angle.cos(), radius * angle.sin()], 1), target)


def main() -> None:
    """Train, and print the average precision of all test samples."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--batch-size", type=int, default=800, help="of all processes together")
    parser.add_argument("--save", metavar="FILE", help="write the parameters as safetensors")
    arguments = parser.parse_args()

    # split_batches: a batch of the loader is divided among the processes. The seedable sampler draws it as one process would.
    loaders = DataLoaderConfiguration(split_batches=True, use_seedable_sampler=True, data_seed=0)
    accelerator = Accelerator(cpu=True, dataloader_config=loaders)
    set_seed(0)
    generator = torch.Generator().manual_seed(0)
    training, test = make_data(4000, generator), make_data(10_001, generator)
    # A last batch that is not full would be filled up with samples that the epoch has had already, so training leaves it out.
    training_loader = DataLoader(training, arguments.batch_size, shuffle=True, drop_last=True)
    test_loader = DataLoader(test, 1000)
    # No bias in the last layer: a ranking does not change if all scores move by a constant.
    layers = [nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1, bias=False), nn.Flatten(0)]
    net = nn.Sequential(*layers)
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
    net, optimizer, training_loader, test_loader = accelerator.prepare(net, optimizer, training_loader, test_loader)
    criterion = tl.DirectLoss("average_precision", sync=accelerator.num_processes > 1)

    net.train()
    for _ in range(arguments.epochs):
        for x, target in training_loader:
            optimizer.zero_grad()
            loss = criterion(net(x), target)
            accelerator.backward(loss)
            optimizer.step()

    net.eval()
    predictions = []
    with torch.no_grad():
        for x, target in test_loader:
            # Called in the loop, it leaves out the samples that fill up the last batch.
            predictions.append(accelerator.gather_for_metrics((net(x), target)))
    scores, target = map(torch.cat, zip(*predictions, strict=True))
    value = tl.metrics.average_precision_score(scores, target)
    accelerator.print(f"training loss {loss.item():.4f}, test AP {value:.6f} of {len(scores)} samples")
    if arguments.save and accelerator.is_main_process:
        save_file(accelerator.unwrap_model(net).state_dict(), arguments.save)
    accelerator.end_training()


if __name__ == "__main__":
    main()
