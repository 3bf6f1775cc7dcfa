"""Table 3 and figure 1 of Meng et al. (2021): the areas of three imbalanced classes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import product
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

import taskloss as tl
from taskloss import metrics
from taskloss.experiments.auc import EPSILON
from taskloss.experiments.experiment import Experiment, Results
from taskloss.experiments.image_training import (
    QUICK_RATES,
    Parts,
    cache_images,
    count_classes,
    load_parts,
    run_tuned,
    score_images,
    train_network,
)
from taskloss.experiments.journal import Cell, Record
from taskloss.experiments.lp_paper import DROP_RATES
from taskloss.experiments.multiclass_auc_page import ROC_RATES, make_page
from taskloss.experiments.page import Page
from taskloss.experiments.runner import Files, Runner

GROUPS = 3
SETS = ("stl10", "tiny_imagenet100")
TUNED_AT = 0.9
"""The drop rate at which the learning rate of a method is chosen."""
ROC_SET = "stl10"
"""The data set of the ROC curves, at the highest drop rate."""


class Method(NamedTuple):
    """A loss of the network's output, and how scores become that output: it is ranked by what it was trained as."""

    criterion: Callable[[Tensor, Tensor], Tensor]
    output: Callable[[Tensor], Tensor]


def probabilities(scores: Tensor) -> Tensor:
    """Return the softmax of the scores ``(n, classes)``."""
    return scores.softmax(1)


def log_likelihood(output: Tensor, target: Tensor) -> Tensor:
    """Return the cross-entropy of probabilities."""
    return functional.nll_loss(output.clamp_min(torch.finfo(output.dtype).tiny).log(), target)


METHODS = {
    "x-ent": Method(log_likelihood, probabilities),
    "LP one-vs-all": Method(tl.lp.MultiClassAUCLoss("one_vs_all", margin=EPSILON, form="ramp"), probabilities),
    "LP one-vs-all, hinge": Method(tl.lp.MultiClassAUCLoss("one_vs_all"), torch.positive),
    "LP AUC-mu, hinge": Method(tl.lp.MultiClassAUCLoss("binary_costs"), torch.positive),
}
"""The second is the paper's: the ramp of probabilities with a margin of 0.01, for each class against the others."""


def grouped_parts(parts: Parts, drop_rate: float, seed: int) -> Parts:
    """Join the classes to three, and drop a share of the training images of the first two."""
    size = count_classes(parts) // GROUPS
    training, validation, test = (part._replace(labels=(part.labels // size).clamp(max=GROUPS - 1)) for part in parts)
    rng, kept = np.random.default_rng([seed, 1]), []
    for group in range(GROUPS):
        members = rng.permutation(np.flatnonzero(training.labels.numpy() == group))
        dropped = round(drop_rate * len(members)) if group < GROUPS - 1 else 0
        kept.append(members[dropped:])
    return Parts(training.rows(np.sort(np.concatenate(kept))), validation, test)


def run_cell(cell: Cell, files: Files) -> Record:
    """Train one network, and measure both areas."""
    parts = grouped_parts(load_parts(files, cell["set"], cell["side"], cell["seed"]), cell["drop rate"], cell["seed"])
    criterion, output = METHODS[cell["method"]]
    model, _ = train_network(
        cell, files, parts.training, lambda scores, target: criterion(output(scores), target), outputs=GROUPS
    )
    return measure_areas(model, output, parts, with_curves=cell["set"] == ROC_SET and cell["drop rate"] == max(DROP_RATES))


def measure_areas(model: nn.Module, output: Callable[[Tensor], Tensor], parts: Parts, *, with_curves: bool) -> Record:
    """Return the areas of validation and test; one half, which is that of no ranking, for a network that diverged."""
    outputs = [output(score_images(model, part.pixels)) for part in (parts.validation, parts.test)]
    if not all(bool(part.isfinite().all()) for part in outputs):
        return {"diverged": True, "chosen_by": 0.5, "one-vs-all AUC": 0.5, "AUC-mu": 0.5}
    record: Record = {
        "diverged": False,
        "chosen_by": round(float(metrics.one_vs_rest_auc_score(outputs[0], parts.validation.labels)), 5),
        "one-vs-all AUC": round(float(metrics.one_vs_rest_auc_score(outputs[1], parts.test.labels)), 5),
        "AUC-mu": round(float(metrics.auc_mu_score(outputs[1], parts.test.labels)), 5),
    }
    if with_curves:
        record["roc"] = [roc_curve(outputs[1][:, group], parts.test.labels == group) for group in range(GROUPS)]
    return record


def roc_curve(scores: Tensor, positive: Tensor) -> list[float]:
    """Return the true positive rate at each of the false positive rates ``ROC_RATES``, between the steps by a line."""
    order = scores.argsort(descending=True, stable=True)
    ends = torch.cat([scores[order].diff() != 0, torch.tensor([True])])
    true = (positive[order].cumsum(0) / positive.sum())[ends]
    false = ((~positive)[order].cumsum(0) / (~positive).sum())[ends]
    rates = np.interp(ROC_RATES, np.concatenate([[0.0], false.numpy()]), np.concatenate([[0.0], true.numpy()]))
    return [round(float(rate), 4) for rate in rates]


@dataclass(frozen=True)
class MultiClassAUC(Experiment):
    """Four methods on two data sets with different shares of two classes dropped."""

    seeds: int = 3
    network: str = "small"
    side: int = 32
    iterations: int = 500
    rates: tuple[float, ...] = QUICK_RATES

    name: ClassVar[str] = "multiclass-auc"
    title: ClassVar[str] = "Areas of several imbalanced classes"
    source: ClassVar[str] = "Meng et al. 2021, table 3 and figure 1"

    def run(self, runner: Runner, seeds: int) -> Results:
        cache_images(runner, SETS, self.side)
        base = {"experiment": self.name, "network": self.network, "side": self.side, "iterations": self.iterations}
        cells = [
            {**base, "set": name, "drop rate": drop_rate, "method": method, "seed": seed}
            for name, method, drop_rate, seed in product(SETS, METHODS, DROP_RATES, range(seeds))
        ]
        records, tried = run_tuned(runner, run_cell, cells, lambda cell: cell["drop rate"] == TUNED_AT, self.rates)
        without_curves = [{key: value for key, value in record.items() if key != "roc"} for record in tried]
        return {"size": asdict(self), "records": records, "tried": without_curves}

    def make_page(self, results: Results) -> Page:
        return make_page(self, results)
