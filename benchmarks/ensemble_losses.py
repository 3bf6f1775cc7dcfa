"""The classifier with four losses: cross-entropy, direct AP, direct AP with a relative epsilon, and a sum of the first two.

- ``relative``: the direct loss whose epsilon is 0.3 standard deviations of the scores of the batch;
- ``sum``: the cross-entropy, summed over the samples and divided by the number of positives, plus 10 times the direct loss. Like
  cross-entropy, it starts from the log-odds of the classes.

Both were proposed with these numbers from single networks on other splits; nothing is chosen here. Sets, splits, conditions and
the errors of the gains are those of ``benchmarks/networks.py``.

    pip install -e '.[cli,estimators]'
    python -m benchmarks.ensemble_losses --data FOLDER --output ensemble_losses.json

With ``--output``, finished runs are kept beside it in a ``.jsonl`` file, and a second call goes on from there.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from benchmarks.cells import Cells, Record
from benchmarks.estimators import CONDITIONS, NAMES, find_data
from benchmarks.networks import print_table, read_rows, split_of
from rich.progress import Progress
from torch import Tensor, nn

from taskloss import DirectLoss
from taskloss.estimators import TaskLossClassifier
from taskloss.estimators.problem import Problem
from taskloss.metrics import average_precision_score
from taskloss.tasks import Task
from taskloss.training import Criterion

EPSILON = 0.3
"""In standard deviations of the scores of the batch."""
WEIGHT = 10.0
"""Weight of the direct loss in the sum."""
BASES = ("cross_entropy", "direct")
LOSSES = (*BASES, "relative", "sum")


def relative(task: Task) -> Criterion:
    """Return the direct loss with an epsilon relative to the spread of the scores.

    The scores are divided by their standard deviation, a constant to the gradient, so only epsilon changes.
    """
    direct = DirectLoss(task, epsilon=EPSILON)
    return lambda scores, target: direct(scores / scores.detach().std().clamp_min(1e-12), target)


def summed(task: Task) -> Criterion:
    """Return the sum of cross-entropy per positive and the direct loss."""
    direct, entropy = DirectLoss(task), nn.BCEWithLogitsLoss(reduction="sum")

    def criterion(scores: Tensor, target: Tensor) -> Tensor:
        return entropy(scores, target.to(scores.dtype)) / target.sum() + WEIGHT * direct(scores, target)

    return criterion


OTHER: dict[str, Callable[[Task], Criterion]] = {"relative": relative, "sum": summed}


@dataclass(frozen=True)
class OtherProblem(Problem):
    """The problem with one of the other losses."""

    loss: str = ""

    def criterion(self) -> Criterion:
        return OTHER[self.loss](self.task)


class OtherClassifier(TaskLossClassifier):
    """The classifier with one of the other losses; what else its method decides is that of cross-entropy for the sum."""

    loss: str

    def _problem(self, task: Task) -> Problem:
        return OtherProblem(**vars(super()._problem(task)), loss=self.loss)


def run_once(data: tuple[np.ndarray, np.ndarray], condition: str, loss: str, seed: int, settings: Record) -> Record:
    """Fit one classifier and return its test AP and the CPU seconds of the fit."""
    seen, target, test, truth = split_of(data, condition, seed)
    if loss in OTHER:
        method = "cross_entropy" if loss == "sum" else "direct"
        model: TaskLossClassifier = OtherClassifier(method=method, random_state=seed, **settings)
        model.loss = loss
    else:
        model = TaskLossClassifier(method=loss, random_state=seed, **settings)
    start = time.process_time()
    model.fit(seen, target)
    seconds = time.process_time() - start
    return {"test_ap": float(average_precision_score(model.decision_function(test), truth)), "cpu_seconds": seconds}


def main() -> None:
    """Run every set, condition, seed and loss, print the tables and save the records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder that holds the sets, or tabular/ with them")
    parser.add_argument("--seeds", type=int, nargs="+", default=[200, 201, 202, 203, 204], help="splits")
    parser.add_argument("--output", type=Path, help="JSON file for the tables and the records")
    parser.add_argument("--quick", action="store_true", help="one small set, few steps, one seed: does it run?")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    start = time.perf_counter()
    folder = find_data(arguments.data)
    seeds, names = ([0], ("keel_pima",)) if arguments.quick else (arguments.seeds, NAMES)
    settings = {"members": 1, "max_iter": 3} if arguments.quick else {}
    data = {name: read_rows(folder, name) for name in names}
    store = Cells(arguments.output and arguments.output.with_suffix(".jsonl"))
    cases = list(itertools.product(seeds, names, CONDITIONS, LOSSES))
    records = []
    with Progress() as progress:
        bar = progress.add_task("", total=len(cases))
        for seed, name, condition, loss in cases:
            progress.update(bar, description=f"seed {seed}, {name}, {condition}, {loss}")
            cell = {"set": name, "condition": condition, "method": "", "seed": seed, "variant": loss} | settings
            records.append(store.run(cell, partial(run_once, data[name], condition, loss, seed, settings)))
            progress.advance(bar)
    summary = {}
    for base in BASES:
        print(f"over {base}")
        summary[base] = print_table(records, [loss for loss in LOSSES if loss != base], (), base)
    print(f"{time.perf_counter() - start:.0f} s in all")
    store.write_summary(arguments.output, summary)


if __name__ == "__main__":
    main()
