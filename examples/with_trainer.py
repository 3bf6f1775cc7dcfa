"""Hugging Face Trainer: train a small BERT on average precision, in one process or in several.

    pip install -e '.[examples]'
    python examples/with_trainer.py
    torchrun --nproc-per-node 2 examples/with_trainer.py

The model starts from random weights, and the sequences are made up: nothing is downloaded. The batch size is that of all
processes together, and the loss ranks the samples of all processes, so both commands train the same network, up to rounding. The
reported value is the exact average precision of all test samples. On the CPU, processes talk over gloo.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch import Tensor
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, EvalPrediction, PrinterCallback, Trainer, TrainingArguments
from transformers.modeling_outputs import SequenceClassifierOutput

import taskloss as tl

DIRECT_AP = tl.DirectLoss("average_precision")


class Sequences(Dataset):
    """Sequences of 16 random tokens; the positives, about 4%, have at least five of the first eight tokens of 64."""

    def __init__(self, n: int, generator: torch.Generator) -> None:
        self.tokens = torch.randint(64, (n, 16), generator=generator)
        self.target = ((self.tokens < 8).sum(1) >= 5).long()

    def __len__(self) -> int:
        """Return the number of sequences."""
        return len(self.target)

    def __getitem__(self, i: int) -> dict[str, Tensor]:
        """Return a sample in the form that the model and the Trainer read."""
        return {"input_ids": self.tokens[i], "labels": self.target[i]}


def average_precision_loss(outputs: SequenceClassifierOutput, target: Tensor, **_: Any) -> Tensor:
    """Return one minus the average precision of the batches of all processes."""
    sync = dist.is_initialized() and dist.get_world_size() > 1
    return DIRECT_AP(outputs.logits.squeeze(1), target, sync=sync)


def average_precision(predicted: EvalPrediction) -> dict[str, float]:
    """Return the average precision of all samples; the Trainer gathers them and leaves repeated ones out."""
    return {"ap": float(tl.metrics.average_precision_score(predicted.predictions.squeeze(1), predicted.label_ids))}


def main() -> None:
    """Train, and print the average precision of all test samples."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=400, help="of all processes together")
    parser.add_argument("--save", metavar="FILE", help="write the parameters as safetensors")
    arguments = parser.parse_args()

    processes = int(os.environ.get("WORLD_SIZE", "1"))
    generator = torch.Generator().manual_seed(0)
    training, test = Sequences(4000, generator), Sequences(4001, generator)
    # Without dropout, since processes would drop other units than one process does.
    size = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    torch.manual_seed(0)
    config = BertConfig(**size, num_labels=1, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    model = BertForSequenceClassification(config)
    # A ranking does not change if all scores move by a constant, so this bias would follow rounding errors.
    model.classifier.bias.requires_grad_(False)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model,
            TrainingArguments(
                output_dir=folder,
                use_cpu=True,
                ddp_find_unused_parameters=False,
                average_tokens_across_devices=False,  # Else the loss is multiplied by the number of processes.
                dataloader_drop_last=True,  # Else a last batch is filled up with samples that the epoch has had already.
                per_device_train_batch_size=arguments.batch_size // processes,
                per_device_eval_batch_size=1000,
                num_train_epochs=arguments.epochs,
                learning_rate=3e-3,
                seed=0,
                logging_strategy="epoch",
                save_strategy="no",
                report_to="none",
                disable_tqdm=True,
                log_level="error",
            ),
            train_dataset=training,
            eval_dataset=test,
            compute_loss_func=average_precision_loss,
            compute_metrics=average_precision,
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
        values = trainer.evaluate()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    if trainer.is_world_process_zero():
        print(f"training loss {losses[0]:.4f} to {losses[-1]:.4f}, test AP {values['eval_ap']:.6f}")
        if arguments.save:
            save_file(model.state_dict(), arguments.save)
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
