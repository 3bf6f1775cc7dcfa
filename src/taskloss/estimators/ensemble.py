"""An ensemble: the mean of several networks, boosters or random forests, each trained without one fold of the samples.

The samples are dealt into folds with the same share of every class. Each member holds one fold out, and its metric on that fold
stops the training of networks and boosters. So every sample is held out by some member, and the thresholds and the calibration
are chosen on held-out scores of all the samples. With more members than folds, the samples are dealt again.

Scores of a ranking loss have no unit and no zero, so the scores of each member are standardized by their mean and standard
deviation over all the training samples before they are averaged.
"""

from __future__ import annotations

import copy
import functools
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.utils.parallel import Parallel, delayed
from torch import Tensor, nn

from taskloss import _checks
from taskloss._warn import warn_caller
from taskloss.estimators.decisions import choose_threshold, is_thresholded
from taskloss.estimators.lightgbm_trees import Trees, grow_trees
from taskloss.estimators.methods import TREE_METHODS
from taskloss.estimators.problem import Problem
from taskloss.training import (
    Checkpoint,
    Criterion,
    Progress,
    TrainingData,
    TrainingResult,
    TrainingSettings,
    build_mlp,
    seeded,
    train,
)

CHUNK = 4096
"""Number of rows that are scored at once; with more, the activations leave the processor's cache."""
CHECKED_ROWS = 32768
"""Number of rows by which to judge whether a fresh network gets a gradient."""


class ScoreNet(nn.Module):
    """A network whose scores have the shape that the problem needs, minus a shift that determines where zero is."""

    shift: Tensor

    def __init__(self, net: nn.Module, outputs: int | None) -> None:
        super().__init__()
        self.net = net
        self.outputs = outputs
        self.register_buffer("shift", torch.zeros(() if outputs is None else (outputs,)))

    def forward(self, features: Tensor) -> Tensor:
        scores = self.net(features)
        shape = (len(features),) if self.outputs is None else (len(features), self.outputs)
        if scores.shape != shape and scores.numel() != len(features) * (self.outputs or 1):
            raise ValueError(
                f"the module returned scores of shape {tuple(scores.shape)} for {len(features)} samples; expected {shape}: "
                "module(n_features, n_outputs) must build a network with n_outputs scores per sample"
            )
        return scores.reshape(shape) - self.shift


@dataclass(frozen=True)
class Member:
    """A network or trees, with the location and scale of the scores: float64, in the shape of one sample's scores."""

    net: ScoreNet | Trees
    location: Tensor
    scale: Tensor
    result: TrainingResult | None
    """Losses and metrics of its training; None when the member was read from a file."""

    def scores(self, features: Tensor) -> Tensor:
        return (raw_scores(self.net, features) - self.location) / self.scale


@dataclass(frozen=True)
class Ensemble:
    """The mean of the members' standardized scores, standardized again; trees take the table itself for features.

    A mean varies less than its terms, so without the second standardization a threshold that was chosen on the held-out scores of
    single members would lie too far out.
    """

    members: tuple[Member, ...]
    scale: Tensor

    def scores(self, features: Tensor) -> np.ndarray:
        return (_mean_scores(self.members, features) / self.scale).numpy()


def _mean_scores(members: Sequence[Member], features: Tensor) -> Tensor:
    return torch.stack([member.scores(features) for member in members]).mean(0)


@torch.no_grad()
def raw_scores(net: nn.Module | Trees, features: Tensor) -> Tensor:
    """Return the scores, computed in float64 so that they do not depend on the other samples of the batch."""
    if isinstance(net, Trees):
        return torch.from_numpy(net.raw_scores(features.numpy()))
    double = copy.deepcopy(net).double().eval()
    return torch.cat([double(part.double()) for part in torch.split(features, CHUNK)])


@dataclass(frozen=True)
class NetworkBuilder:
    """A function from a seed to a fresh network; other processes can call it too."""

    features: int
    outputs: int | None
    hidden: tuple[int, ...]
    dropout: float
    module: Callable[[int, int], nn.Module] | None = None
    """``module(n_features, n_outputs)`` builds the user's own network."""

    def __call__(self, seed: int = 0) -> nn.Module:
        if self.module is None:
            return build_mlp(self.features, hidden=self.hidden, outputs=self.outputs, dropout=self.dropout, seed=seed)
        _checks.check_callable("module", self.module, "(n_features, n_outputs)")
        with seeded(seed, torch.device("cpu")):
            net: Any = self.module(self.features, self.outputs or 1)
        if not isinstance(net, nn.Module):
            raise TypeError(f"module(n_features, n_outputs) must return a torch.nn.Module, got {type(net).__name__}")
        return net


@dataclass(frozen=True)
class Plan:
    """The plan for training the members."""

    problem: Problem
    settings: TrainingSettings
    build: NetworkBuilder
    """Builds the networks; trees do without."""
    splits: Sequence[tuple[np.ndarray, np.ndarray]]
    """Rows to train on and rows to hold out, one pair per member."""
    copies: np.ndarray | None
    """Index of the row that each sample is a copy of; None where each sample is a row of its own."""
    seeds: Sequence[int]
    warm_up: int = 0
    """Steps of cross-entropy before a loss that has no gradient for the worst answers. They count toward the budget, and their
    weights are kept if no later ones are better."""
    initial: Sequence[ScoreNet] | None = None
    """Networks to continue from, instead of fresh ones."""
    checkpoint: Path | None = None
    """Folder for the state of each member's training."""
    callback: Callable[[int, Progress], None] | None = None
    """Called with the number of the member and its progress after each step; after each member where processes train them."""
    first: int = 0
    """Number of the first member, which the callback and the files of the checkpoint count from."""
    jobs: int = 1
    """Number of processes that train members at the same time; with 1, this process trains them."""
    threads: int = 1
    """Number of torch threads of each process."""


def fit_ensemble(plan: Plan, data: TrainingData) -> tuple[Ensemble, np.ndarray, np.ndarray]:
    """Train all members.

    Returns:
        The ensemble; the score of each sample, averaged over the members that held it out; and a mask of the samples that some
        member held out.
    """
    samples, outputs = len(data.target), plan.problem.outputs
    total = torch.zeros((samples,) if outputs is None else (samples, outputs), dtype=torch.float64)
    count = np.zeros(samples)
    with torch_threads(plan.threads):
        members = _train_members(plan, data)
        _warn_of_stuck_members(plan.problem, members)
        for member, (_, held_out) in zip(members, plan.splits, strict=True):
            total[held_out] += member.scores(data.features[held_out])
            count[held_out] += 1
        mean = total.numpy() / np.maximum(count, 1).reshape(-1, *[1] * (total.ndim - 1))
        _, scale = location_and_scale(plan.problem, _mean_scores(members, data.features))
    return Ensemble(tuple(members), scale), mean, count > 0


def _warn_of_stuck_members(problem: Problem, members: Sequence[Member]) -> None:
    """Warn if a direct loss, whose largest value is 1, ended there: the network then has learned nothing from it."""
    last = [member.result.losses[-1] for member in members if member.result is not None]
    stuck = sum(loss >= 1.0 - 1e-6 for loss in last)
    if stuck and problem.method.startswith("direct"):
        warn_caller(
            f"the loss of {stuck} of {len(last)} networks stayed at its maximum: {type(problem.task).__name__} was 0 on the "
            "training samples, where the direct loss has no gradient. Try method='hinge' or a metric of more than the top of the "
            "list, and method='cross_entropy' to see whether the features tell the classes apart at all"
        )


def _train_members(plan: Plan, data: TrainingData) -> list[Member]:
    """Train the members, here or in processes; the results are the same."""
    numbers = range(len(plan.splits))
    if plan.jobs == 1:
        return [_train_member(plan, index, data) for index in numbers]
    # Processes, not threads: torch has one random state and one number of threads per process.
    quiet = replace(plan, callback=None)
    run = Parallel(n_jobs=plan.jobs, backend="loky", return_as="generator")
    members = []
    for index, member in enumerate(run(delayed(_train_member)(quiet, index, data) for index in numbers)):
        members.append(member)
        if plan.callback is not None:
            for step, (loss, metric) in enumerate(zip(member.result.losses, member.result.metrics, strict=True)):
                plan.callback(plan.first + index, Progress(step + 1, loss, metric))
    return members


def _train_member(plan: Plan, index: int, data: TrainingData) -> Member:
    """Train the member of this index on its rows."""
    training, held_out = (data.rows(torch.from_numpy(rows)) for rows in plan.splits[index])
    with torch_threads(plan.threads):
        fit = _grow_trees if plan.problem.method in TREE_METHODS else _train_network
        net, result = fit(plan, index, training, held_out)
        return Member(net, *location_and_scale(plan.problem, raw_scores(net, data.features)), result)


@contextmanager
def torch_threads(threads: int) -> Iterator[None]:
    """Set the number of torch threads for a block; with a fixed number, sums do not depend on the machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _train_network(plan: Plan, index: int, training: TrainingData, held_out: TrainingData) -> tuple[ScoreNet, TrainingResult]:
    """Train the network of the member of this index, after a warm-up where its loss needs one."""
    problem, seed = plan.problem, int(plan.seeds[index])
    net = ScoreNet(plan.build(seed), problem.outputs) if plan.initial is None else copy.deepcopy(plan.initial[index])

    def train_phase(criterion: Criterion, settings: TrainingSettings, phase: str, steps_before: int = 0) -> TrainingResult:
        checkpoint = (
            None if plan.checkpoint is None else Checkpoint(plan.checkpoint / f"member-{plan.first + index}-{phase}.safetensors")
        )

        def report(progress: Progress) -> None:
            if plan.callback is not None:
                plan.callback(plan.first + index, progress._replace(iteration=steps_before + progress.iteration))

        return train(
            net,
            criterion,
            training,
            held_out,
            settings=settings,
            metric=problem.metric,
            seed=seed,
            on_iteration=None if plan.callback is None else report,
            checkpoint=checkpoint,
        )

    settings = plan.settings
    warm_up = plan.initial is None and (problem.needs_warm_up or _starts_stuck(net, problem, training))
    if warm_up or (plan.initial is None and problem.method == "cross_entropy"):
        net.shift -= _log_odds(problem, training).to(net.shift)
    if not warm_up:
        return net, train_phase(problem.criterion(), settings, "metric")
    steps = min(plan.warm_up, max(1, settings.iterations // 2))
    first = train_phase(problem.warm_up_criterion(), replace(settings, iterations=steps, patience=steps), "warm-up")
    _shift_to_threshold(net, problem, training)
    warmed_up = copy.deepcopy(net)
    second = train_phase(problem.criterion(), replace(settings, iterations=max(1, settings.iterations - steps)), "metric", steps)
    best = steps + second.best_iteration if second.best_metric >= first.best_metric else first.best_iteration
    result = TrainingResult(first.losses + second.losses, first.metrics + second.metrics, best)
    return (net if best > steps else warmed_up), result


def _grow_trees(plan: Plan, index: int, training: TrainingData, held_out: TrainingData) -> tuple[Trees, TrainingResult]:
    """Grow the trees of the member of this index. It takes no time worth a checkpoint."""
    rows = None if plan.copies is None else len(np.unique(plan.copies[plan.splits[index][0]]))
    return grow_trees(
        plan.problem,
        training,
        held_out,
        settings=plan.settings,
        seed=int(plan.seeds[index]),
        threads=plan.threads,
        on_round=None if plan.callback is None else functools.partial(plan.callback, plan.first + index),
        rows=rows,
    )


def _starts_stuck(net: ScoreNet, problem: Problem, samples: TrainingData) -> bool:
    """Whether the loss of a fresh network has a gradient for fewer than half of the positives.

    So it is for a metric of the top of a list: a positive below the top has none, and training may take away the few above.
    """
    batch = samples.rows(torch.arange(min(len(samples.target), CHECKED_ROWS)))
    # In evaluation mode the network draws no random numbers.
    scores = net.eval()(batch.features).detach().requires_grad_()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # The loss itself would warn of it.
        problem.criterion()(scores, batch.target, **batch.options()).backward()
    positive = batch.target > 0
    return scores.grad is not None and 2 * int(scores.grad[positive].count_nonzero()) < int(positive.sum())


def _log_odds(problem: Problem, samples: TrainingData) -> Tensor:
    """Return the log-odds of each class or label in the samples: the scores that cross-entropy starts from.

    If it started from scores near 0, its first steps would only push the scores of all samples down, through the hidden layers,
    and with few positives the network would rank below chance for a long time. Rankings do not depend on a shift, so only
    cross-entropy needs this.
    """
    target = nn.functional.one_hot(samples.target, problem.outputs or 2) if problem.chooses_class else samples.target
    weights = torch.ones(len(target)) if samples.weights is None else samples.weights
    share = (weights.double() @ (target > 0).double() + 0.5) / (weights.double().sum() + 1)
    return share.log() if problem.exclusive else share.logit()


def _shift_to_threshold(net: ScoreNet, problem: Problem, samples: TrainingData) -> None:
    """Make the best threshold the zero of the scores, for a metric of labels.

    Otherwise rare positives may all score below zero, where the metric is 0 and the loss has no gradient.
    """
    if not is_thresholded(problem.task):
        return
    scores = raw_scores(net, samples.features).numpy().reshape(len(samples.target), -1)
    target = samples.target.numpy().reshape(len(samples.target), -1)
    best = [choose_threshold(problem.task, *pair) for pair in zip(scores.T, target.T, strict=True)]
    net.shift += torch.tensor(best).to(net.shift).reshape(net.shift.shape)


def location_and_scale(problem: Problem, scores: Tensor) -> tuple[Tensor, Tensor]:
    """Return what to subtract from scores and what to divide them by, so that they are standardized."""
    if problem.chooses_class:
        # The scores of the classes are compared with each other, so all of them get the same scale and none is shifted.
        location, scale = torch.zeros(scores.shape[1:]).double(), scores.std().expand(scores.shape[1:]).clone()
    else:
        location, scale = scores.mean(0), scores.std(0)
    return location, torch.where(scale > torch.finfo(torch.float32).tiny, scale, torch.ones_like(scale))
