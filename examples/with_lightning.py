"""PyTorch Lightning: train a network on average precision, in one process or in several.

    pip install -e '.[examples]'
    python examples/with_lightning.py
    python examples/with_lightning.py --processes 2

The batch size is that of all processes together, and the loss ranks the samples of all processes, so both commands train the same
network, up to rounding. The reported values are the exact average precision of all validation and all test samples.
"""

from __future__ import annotations

import argparse
import logging
import warnings

import pytorch_lightning as pl
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset

import taskloss as tl


def make_data(n: int, generator: torch.Generator) -> TensorDataset:
    """Return points on two rings and their labels; the positives, 5%, are on the inner ring."""
    target = torch.rand(n, generator=generator) < 0.05
    radius = torch.where(target, 1.0, 2.0) + 0.35 * torch.randn(n, generator=generator)
    angle = 6.2832 * torch.rand(n, generator=generator)
    return TensorDataset(torch.stack([radius * angle.cos(), radius * angle.sin()], 1), target)


class Rings(pl.LightningDataModule):
    """The training, validation and test samples of this process."""

    def __init__(self, batch_size: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.training, self.validation, self.test = (make_data(n, generator) for n in (4000, 2001, 10_001))
        self.batch_size = batch_size

    def train_dataloader(self) -> DataLoader:
        world, rank = self.trainer.world_size, self.trainer.global_rank
        # All ranks need the same number of batches. drop_last leaves a few samples out of an epoch instead of repeating some.
        sampler = DistributedSampler(self.training, world, rank, drop_last=True)
        return DataLoader(self.training, self.batch_size // world, sampler=sampler)

    def val_dataloader(self) -> DataLoader:
        return self.shard(self.validation)

    def test_dataloader(self) -> DataLoader:
        return self.shard(self.test)

    def shard(self, data: TensorDataset) -> DataLoader:
        """Return batches of the samples of this rank. Each sample is on one rank, so some have one more than others."""
        return DataLoader(Subset(data, range(self.trainer.global_rank, len(data), self.trainer.world_size)), 1000)


class Ranker(pl.LightningModule):
    """A small network, trained on average precision."""

    def __init__(self) -> None:
        super().__init__()
        # No bias in the last layer: a ranking does not change if all scores move by a constant.
        layers = [nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1, bias=False), nn.Flatten(0)]
        self.network = nn.Sequential(*layers)
        self.criterion = tl.DirectLoss("average_precision")
        self.predictions: list[tuple[Tensor, Tensor]] = []

    def training_step(self, batch: list[Tensor], index: int) -> Tensor:
        features, target = batch
        # There is no process group yet when the module is built, so sync is an option of the call.
        loss = self.criterion(self.network(features), target, sync=self.trainer.world_size > 1)
        self.log("train_loss", loss)  # Without sync_dist: the value is that of all ranks.
        return loss

    def validation_step(self, batch: list[Tensor], index: int) -> None:
        features, target = batch
        self.predictions.append((self.network(features), target))

    test_step = validation_step

    def on_validation_epoch_end(self) -> None:
        self.log_average_precision("valid_ap")

    def on_test_epoch_end(self) -> None:
        self.log_average_precision("test_ap")

    def log_average_precision(self, name: str) -> None:
        """Log the average precision of all batches of all ranks."""
        scores, target = map(torch.cat, zip(*self.predictions, strict=True))
        if self.trainer.world_size > 1:
            scores, target = tl.distributed.gather(scores, target)
        self.log(name, tl.metrics.average_precision_score(scores, target), sync_dist=True)  # The same value on all ranks.
        self.predictions.clear()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


def main() -> None:
    """Train, and print the average precision."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--batch-size", type=int, default=800, help="of all processes together")
    parser.add_argument("--save", metavar="FILE", help="write the parameters as safetensors")
    arguments = parser.parse_args()

    warnings.filterwarnings("ignore", message="The '.*_dataloader' does not have many workers")
    warnings.filterwarnings("ignore", message=r"`isinstance\(treespec, LeafSpec\)` is deprecated")  # By Lightning itself.
    logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
    pl.seed_everything(0, verbose=False)
    model, data = Ranker(), Rings(arguments.batch_size)
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=arguments.processes,
        strategy="ddp" if arguments.processes > 1 else "auto",
        use_distributed_sampler=False,  # The loaders are those of each rank already; Lightning's repeat samples to fill up.
        max_epochs=arguments.epochs,
        num_sanity_val_steps=0,
        log_every_n_steps=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, data)
    loss, validation = (float(trainer.callback_metrics[name]) for name in ("train_loss", "valid_ap"))
    trainer.test(model, data, verbose=False)
    if trainer.is_global_zero:
        print(f"training loss {loss:.4f}, validation AP {validation:.4f}, test AP {trainer.callback_metrics['test_ap']:.6f}")
        if arguments.save:
            save_file(model.state_dict(), arguments.save)


if __name__ == "__main__":
    main()
