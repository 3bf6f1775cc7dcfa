"""Several networks, each stopped by samples that it was not trained on, and their mean.

The samples are dealt into folds, the same share of every class in each. A member holds one fold out: its metric there stops the
training. So every sample is held out by some member, and what is chosen on held-out scores, thresholds and calibration, has all
the samples to choose by. More members than folds: the samples are dealt anew.

Scores of a ranking loss have no unit and no zero, so each member's are standardized, by their mean and standard deviation over
all the training samples, before the mean over members is taken.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from taskloss.estimators.decisions import choose_threshold, is_thresholded
from taskloss.estimators.problem import Problem
from taskloss.training import Checkpoint, Criterion, Progress, Samples, TrainingResult, TrainingSettings, train

CHUNK = 65_536
"""Rows that are scored at once."""


class ScoreNet(nn.Module):
    """A network whose scores have the shape that the problem asks for, less a shift that sets where zero is."""

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
                "module(n_features, n_outputs) must build a network with n_outputs scores a sample"
            )
        return scores.reshape(shape) - self.shift


@dataclass(frozen=True)
class Member:
    """One network, and the location and scale of its scores, float64 of the shape of one sample's scores."""

    net: ScoreNet
    location: Tensor
    scale: Tensor
    result: TrainingResult | None
    """The course of its training; not kept in files."""

    def scores(self, features: Tensor) -> Tensor:
        return (raw_scores(self.net, features) - self.location) / self.scale


@dataclass(frozen=True)
class Ensemble:
    """The mean of its members' standardized scores, standardized again: a mean varies less than what it is the mean of, and a
    threshold that was chosen on held-out scores of single members would be too far out.
    """

    members: tuple[Member, ...]
    scale: Tensor

    def scores(self, features: Tensor) -> np.ndarray:
        return (_mean_scores(self.members, features) / self.scale).numpy()


def _mean_scores(members: Sequence[Member], features: Tensor) -> Tensor:
    return torch.stack([member.scores(features) for member in members]).mean(0)


@torch.no_grad()
def raw_scores(net: nn.Module, features: Tensor) -> Tensor:
    """In float64, so that the score of a sample does not depend on the samples beside it."""
    double = copy.deepcopy(net).double().eval()
    return torch.cat([double(part.double()) for part in torch.split(features, CHUNK)])


@dataclass(frozen=True)
class Plan:
    """How the members are trained."""

    problem: Problem
    settings: TrainingSettings
    build: Callable[[int], nn.Module]
    """A seed to a fresh network."""
    splits: Sequence[tuple[np.ndarray, np.ndarray]]
    """Rows to train on and rows to hold out, one pair a member."""
    seeds: Sequence[int]
    warm_up: int = 0
    """Steps on cross-entropy before a loss that has no gradient for the worst answers; they count among all the steps, and their
    weights are kept if nothing better comes after them."""
    initial: Sequence[ScoreNet] | None = None
    """Networks to go on from, instead of fresh ones."""
    checkpoint: Path | None = None
    """A folder for the state of each member."""
    callback: Callable[[int, Progress], None] | None = None
    """Told the number of the member and its progress after each step."""


def fit_ensemble(plan: Plan, samples: Samples) -> tuple[Ensemble, np.ndarray, np.ndarray]:
    """The ensemble, the scores of all samples by members that held them out (their mean), and which samples have some."""
    members = []
    total = torch.zeros(samples.target.shape[:1] if plan.problem.outputs is None else (len(samples.target), plan.problem.outputs))
    total, count = total.double(), np.zeros(len(samples.target))
    for number, (training, held_out) in enumerate(plan.splits):
        net, result = _train_member(
            plan, number, samples.rows(torch.from_numpy(training)), samples.rows(torch.from_numpy(held_out))
        )
        member = Member(net, *_location_and_scale(plan.problem, raw_scores(net, samples.features)), result)
        total[held_out] += member.scores(samples.features[held_out])
        count[held_out] += 1
        members.append(member)
    mean = total.numpy() / np.maximum(count, 1).reshape(-1, *[1] * (total.ndim - 1))
    _, scale = _location_and_scale(plan.problem, _mean_scores(members, samples.features))
    return Ensemble(tuple(members), scale), mean, count > 0


def _train_member(plan: Plan, number: int, training: Samples, held_out: Samples) -> tuple[ScoreNet, TrainingResult]:
    problem, seed = plan.problem, int(plan.seeds[number])
    net = ScoreNet(plan.build(seed), problem.outputs) if plan.initial is None else copy.deepcopy(plan.initial[number])

    def run(criterion: Criterion, settings: TrainingSettings, phase: str) -> TrainingResult:
        checkpoint = None if plan.checkpoint is None else Checkpoint(plan.checkpoint / f"member-{number}-{phase}.safetensors")
        told = None if plan.callback is None else functools.partial(plan.callback, number)
        return train(
            net,
            criterion,
            training,
            held_out,
            settings=settings,
            metric=problem.metric,
            seed=seed,
            on_iteration=told,
            checkpoint=checkpoint,
        )

    settings = plan.settings
    if plan.initial is None and (problem.needs_warm_up or problem.method == "cross_entropy"):
        net.shift -= _log_odds(problem, training.target).to(net.shift)
    if not problem.needs_warm_up or plan.initial is not None:
        return net, run(problem.criterion(), settings, "metric")
    steps = min(plan.warm_up, max(1, settings.iterations // 2))
    first = run(problem.warm_up_criterion(), replace(settings, iterations=steps, patience=steps), "warm-up")
    _centre(net, problem, training)
    warmed_up = copy.deepcopy(net)
    second = run(problem.criterion(), replace(settings, iterations=max(1, settings.iterations - steps)), "metric")
    best = steps + second.best_iteration if second.best_metric >= first.best_metric else first.best_iteration
    result = TrainingResult(first.losses + second.losses, first.metrics + second.metrics, best)
    return (net if best > steps else warmed_up), result


def _log_odds(problem: Problem, target: Tensor) -> Tensor:
    """Of the classes or labels among the samples, for the scores that cross-entropy starts from.

    From scores near 0 its first steps only push all samples down, by way of the hidden layers: with few positives the network
    then ranks below chance for a long time. Rankings do not depend on a shift, so only cross-entropy needs it.
    """
    if problem.chooses_class:
        target = nn.functional.one_hot(target, problem.outputs or 2)
    share = ((target > 0).double().sum(0) + 0.5) / (len(target) + 1)
    return share.log() if problem.exclusive else share.logit()


def _centre(net: ScoreNet, problem: Problem, samples: Samples) -> None:
    """Move zero to the threshold that is best for a metric of labels: rare positives may lie all below it, where it is 0."""
    if not is_thresholded(problem.task):
        return
    scores = raw_scores(net, samples.features).numpy().reshape(len(samples.target), -1)
    target = samples.target.numpy().reshape(len(samples.target), -1)
    best = [choose_threshold(problem.task, *pair) for pair in zip(scores.T, target.T, strict=True)]
    net.shift += torch.tensor(best).to(net.shift).reshape(net.shift.shape)


def _location_and_scale(problem: Problem, scores: Tensor) -> tuple[Tensor, Tensor]:
    if problem.chooses_class:
        # The classes compete: one scale for all of them, and no shift of one against another.
        location, scale = torch.zeros(scores.shape[1:]).double(), scores.std().expand(scores.shape[1:]).clone()
    else:
        location, scale = scores.mean(0), scores.std(0)
    return location, torch.where(scale > torch.finfo(torch.float32).tiny, scale, torch.ones_like(scale))


def deal_folds(kinds: np.ndarray, folds: int, rng: np.random.Generator) -> np.ndarray:
    """The fold of each sample: every kind is spread over the folds evenly, up to one sample.

    >>> np.bincount(deal_folds(np.repeat([0, 1], [90, 10]), 5, np.random.default_rng(0))[90:]).tolist()
    [2, 2, 2, 2, 2]
    """
    shuffled = rng.permutation(len(kinds))
    by_kind = shuffled[np.argsort(kinds[shuffled], kind="stable")]
    fold = np.empty(len(kinds), np.int64)
    fold[by_kind] = np.arange(len(kinds)) % folds
    return fold


def make_splits(kinds: np.ndarray, members: int, folds: int, rng: np.random.Generator) -> list[tuple[np.ndarray, np.ndarray]]:
    """One pair of rows, to train on and to hold out, for each member; with one fold nothing can be held out."""
    everything = np.arange(len(kinds))
    if folds < 2:
        return [(everything, everything)] * members
    splits: list[tuple[np.ndarray, np.ndarray]] = []
    while len(splits) < members:
        fold = deal_folds(kinds, folds, rng)
        splits += [(everything[fold != number], everything[fold == number]) for number in range(folds)]
    return splits[:members]
