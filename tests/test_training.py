"""The training loop: deterministic, keeps the best weights, stops in time, resumes, leaves the caller's random state alone."""

from __future__ import annotations

import math
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import taskloss as tl
from taskloss.metrics import average_precision_score, roc_auc_score
from taskloss.training import Checkpoint, Progress, TrainingData, TrainingSettings, build_mlp, train
from taskloss.training import settings as training_settings
from taskloss.training.data import Batches

SHORT = TrainingSettings(iterations=30)


def noisy_samples(seed: int, n: int = 200) -> TrainingData:
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(n, 4, generator=generator)
    target = (features[:, 0] + torch.randn(n, generator=generator) > 1).long()
    return TrainingData(features, target)


def weights_of(model: nn.Module) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in model.parameters()]


@pytest.fixture
def direct() -> tl.DirectLoss:
    return tl.DirectLoss("average_precision")


def test_same_seed_same_run_whatever_the_global_state(direct):
    def run() -> tuple:
        model = nn.Sequential(build_mlp(4, seed=3)[0], nn.Dropout(0.5), nn.ReLU(), nn.Linear(64, 1, bias=False), nn.Flatten(0))
        nn.init.ones_(model[3].weight)
        return train(model, direct, noisy_samples(0), noisy_samples(1), settings=SHORT, seed=7), weights_of(model)

    torch.manual_seed(0)
    first, first_weights = run()
    torch.manual_seed(99)
    second, second_weights = run()
    assert first == second
    assert all(map(torch.equal, first_weights, second_weights))


def test_the_seed_matters():
    assert not torch.equal(build_mlp(4, seed=0)[0].weight, build_mlp(4, seed=1)[0].weight)


def test_callers_random_state_is_untouched(direct):
    before = torch.get_rng_state()
    train(build_mlp(4, seed=5), direct, noisy_samples(0), noisy_samples(1), settings=SHORT, seed=5)
    assert torch.equal(torch.get_rng_state(), before)


def test_network_shape():
    assert [layer.out_features for layer in build_mlp(7) if isinstance(layer, nn.Linear)] == [64, 64, 1]
    assert build_mlp(7, hidden=())(torch.zeros(1, 7)).shape == (1,)


def test_best_weights_are_restored(direct):
    validation = noisy_samples(1)
    model = build_mlp(4)
    seen = []
    overfit = TrainingSettings(iterations=150, patience=150)
    result = train(
        model, direct, noisy_samples(0), validation, settings=overfit, on_iteration=lambda _: seen.append(weights_of(model))
    )
    assert result.best_metric == max(result.metrics) > result.metrics[-1], "the case must have a best step before the last"
    assert result.best_iteration == result.metrics.index(result.best_metric) + 1
    assert all(map(torch.equal, weights_of(model), seen[result.best_iteration - 1]))
    assert average_precision_score(model(validation.features).detach(), validation.target) == result.best_metric
    assert not model.training


def test_losses_are_the_criterion_before_each_step(direct):
    training = noisy_samples(0)
    before = direct(build_mlp(4)(training.features), training.target).item()
    result = train(build_mlp(4), direct, training, noisy_samples(1), settings=SHORT)
    assert result.losses[0] == before
    assert result.losses[-1] < 0.7 * before


def test_early_stopping_counts_from_the_best_step():
    values = iter([0.1, 0.5, 0.5, 0.4, 0.3, 0.9])
    settings = TrainingSettings(iterations=6, patience=3)
    result = train(
        build_mlp(4), nn.SoftMarginLoss(), noisy_samples(0), noisy_samples(1), settings=settings, metric=lambda *_: next(values)
    )
    assert result.metrics == (0.1, 0.5, 0.5, 0.4, 0.3), "a tie is no improvement; the sixth step is never taken"
    assert result.best_iteration == 2
    assert len(result.losses) == 5


def test_negative_metrics_can_be_best():
    result = train(build_mlp(4), nn.SoftMarginLoss(), noisy_samples(0), noisy_samples(1), settings=SHORT, metric=lambda *_: -1.0)
    assert result.best_iteration == 1


def test_progress_is_told_after_each_step(direct):
    told: list[Progress] = []
    result = train(build_mlp(4), direct, noisy_samples(0), noisy_samples(1), settings=SHORT, on_iteration=told.append)
    assert [progress.iteration for progress in told] == list(range(1, 31))
    assert tuple(progress.loss for progress in told) == result.losses
    assert tuple(progress.metric for progress in told) == result.metrics


def test_one_class_validation_is_an_error(direct):
    samples = noisy_samples(1)
    with pytest.raises(ValueError, match="both classes"):
        train(build_mlp(4), direct, noisy_samples(0), TrainingData(samples.features, torch.zeros_like(samples.target)))


def test_nothing_to_train_is_an_error(direct):
    with pytest.raises(ValueError, match="no parameters"):
        train(nn.Flatten(0), direct, noisy_samples(0), noisy_samples(1))


@pytest.mark.parametrize(
    "settings",
    [
        {"iterations": 0},
        {"iterations": 2.5},
        {"patience": True},
        {"learning_rate": 0.0},
        {"weight_decay": -1.0},
        {"optimizer": "adam"},
        {"backward_rows": 0},
    ],
)
def test_bad_settings(settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        TrainingSettings(**settings)


def test_many_validation_samples_are_not_scored_more_often_than_they_are_trained_on():
    calls = []

    def metric(scores, target):
        calls.append(len(target))
        return float(len(calls))

    settings = TrainingSettings(iterations=12, batch_size=200)
    samples = noisy_samples(0, n=1000)
    result = train(build_mlp(4), nn.SoftMarginLoss(), samples, samples, settings=settings, metric=metric)
    assert calls == [1000] * 4, "after steps 1, 5, 10 and 12: five batches hold as many samples"
    assert result.metrics == (1, 1, 1, 1, 2, 2, 2, 2, 2, 3, 3, 4)
    assert result.best_iteration == 12
    calls.clear()
    train(build_mlp(4), nn.SoftMarginLoss(), samples, noisy_samples(1, n=200), settings=settings, metric=metric)
    assert len(calls) == 12, "as many samples as a batch: after each step"


# --- batches ------------------------------------------------------------------------------------------------------------


def test_large_sets_are_trained_in_batches_that_look_like_the_whole():
    sizes, shares = [], []

    def criterion(scores, target):
        sizes.append(len(target))
        shares.append(int(target.sum()))
        return nn.functional.soft_margin_loss(scores, 2.0 * target - 1)

    target = torch.arange(1000) % 10 == 0
    samples = TrainingData(torch.arange(1000.0)[:, None] / 1000, target)
    train(build_mlp(1), criterion, samples, samples, settings=TrainingSettings(iterations=10, batch_size=200))
    assert sizes == [200] * 10
    assert all(19 <= share <= 21 for share in shares)
    assert sum(shares[:5]) == sum(shares[5:]) == 100


def test_every_epoch_sees_every_sample_once_in_a_new_order():
    target = torch.tensor([0, 1, 1, 0, 2, 2, 0])
    batches = Batches(TrainingData(torch.arange(7.0)[:, None], target), batch_size=3, seed=4)
    epochs = [torch.cat([batches.of_step(3 * epoch + place).features[:, 0] for place in range(3)]) for epoch in range(4)]
    assert all(torch.equal(epoch.sort().values, torch.arange(7.0)) for epoch in epochs)
    assert not torch.equal(epochs[0], epochs[1])
    again = Batches(TrainingData(torch.arange(7.0)[:, None], target), batch_size=3, seed=4)
    assert torch.equal(again.of_step(11).features, batches.of_step(11).features), "a step does not depend on those before it"


def test_queries_stay_in_one_piece():
    groups = torch.arange(60) % 7
    batches = Batches(TrainingData(torch.zeros(60, 1), torch.zeros(60), groups), batch_size=20, seed=0)
    parts = [batches.of_step(step).groups.unique() for step in range(3)]
    assert sorted(torch.cat(parts).tolist()) == list(range(7))


def test_criterion_and_metric_get_the_groups_of_their_rows():
    samples = TrainingData(torch.randn(60, 1), torch.arange(60) % 2, torch.arange(60) // 6)
    seen = []

    def metric(scores, target, *, groups):
        seen.append(groups)
        return average_precision_score(scores, target, groups=groups)

    settings = TrainingSettings(iterations=3, batch_size=25)
    train(build_mlp(1), tl.DirectLoss("average_precision"), samples, samples, settings=settings, metric=metric)
    assert all(torch.equal(groups, samples.groups) for groups in seen)


# --- averages -----------------------------------------------------------------------------------------------------------


def test_the_mean_of_the_weights_is_kept():
    seen, settings = [], TrainingSettings(iterations=4, averaging=0.6)
    model = build_mlp(4)
    values = iter([0.1, 0.2, 0.3, 0.4])
    criterion, samples = nn.SoftMarginLoss(), noisy_samples(0)
    train(
        model,
        lambda scores, target: criterion(scores, 2.0 * target - 1),
        samples,
        samples,
        settings=settings,
        metric=lambda *_: next(values),
        on_iteration=lambda _: seen.append(model[0].weight.detach().clone()),
    )
    mean = seen[0].clone()
    for weight, share in zip(seen[1:], (1 / 2, 0.4, 0.4), strict=True):
        mean = mean + share * (weight - mean)
    torch.testing.assert_close(model[0].weight.detach(), mean)


def test_smoothing_passes_over_a_lucky_step():
    values = iter([0.1, 0.9, 0.1, 0.6, 0.6, 0.6, 0.5])
    samples, settings = noisy_samples(0), TrainingSettings(iterations=7, patience=7, smoothing=3)
    result = train(build_mlp(4), nn.SoftMarginLoss(), samples, samples, settings=settings, metric=lambda *_: next(values))
    assert result.best_iteration == 6


def test_smoothing_does_not_keep_a_lucky_first_step():
    """Of a window that is not full, one value would beat every later mean: the net would stay untrained."""
    values = iter([1.0, 0.1, 0.1, 0.5, 0.6, 0.7, 0.7])
    samples, settings = noisy_samples(0), TrainingSettings(iterations=7, patience=7, smoothing=3)
    result = train(build_mlp(4), nn.SoftMarginLoss(), samples, samples, settings=settings, metric=lambda *_: next(values))
    assert result.best_iteration == 7
    short = TrainingSettings(iterations=2, smoothing=10)
    assert train(build_mlp(4), nn.SoftMarginLoss(), samples, samples, settings=short).best_iteration == 2


# --- checkpoints --------------------------------------------------------------------------------------------------------

RUN = """
import os, signal, sys, torch, taskloss as tl
from pathlib import Path
from torch import nn
from taskloss._storage import write_tensors
from taskloss.training import *

folder, kill_at = Path(sys.argv[1]), int(sys.argv[2])
torch.manual_seed(0)
features = torch.randn(90, 4)
samples = TrainingData(features, (features[:, 0] + torch.randn(90) > 1).long())
settings = TrainingSettings(iterations=40, patience=40, batch_size=int(sys.argv[3]), averaging=float(sys.argv[4]))
model = build_mlp(4, dropout=0.3)

def on_iteration(progress):
    if progress.iteration == kill_at:
        os.kill(os.getpid(), signal.SIGKILL)

options = {"checkpoint": Checkpoint(folder / "run.safetensors", every=6), "on_iteration": on_iteration}
train(model, tl.DirectLoss("average_precision"), samples, samples, settings=settings, **options)
write_tensors(folder / "model.safetensors", model.state_dict(), {})
"""


@pytest.mark.parametrize(("batch_size", "averaging"), [(1000, 0.0), (25, 0.9)])
def test_a_killed_run_goes_on_to_the_same_bytes(tmp_path, batch_size, averaging):
    def run(folder: Path, kill_at: int) -> int:
        folder.mkdir(exist_ok=True)
        command = [sys.executable, "-c", RUN, str(folder), str(kill_at), str(batch_size), str(averaging)]
        return subprocess.run(command, check=False).returncode

    assert run(tmp_path / "whole", 0) == 0
    assert run(tmp_path / "killed", 20) == -signal.SIGKILL
    assert not (tmp_path / "killed" / "model.safetensors").exists()
    assert run(tmp_path / "killed", 31) == -signal.SIGKILL
    assert run(tmp_path / "killed", 0) == 0
    for name in ("model.safetensors", "run.safetensors"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_finished_run_is_not_run_again(tmp_path, direct):
    def run() -> tuple:
        told: list[Progress] = []
        model = build_mlp(4)
        checkpoint = Checkpoint(tmp_path / "run.safetensors")
        parts = (noisy_samples(0), noisy_samples(1))
        result = train(model, direct, *parts, settings=SHORT, checkpoint=checkpoint, on_iteration=told.append)
        return result, weights_of(model), len(told)

    (first, first_weights, steps), (second, second_weights, none) = run(), run()
    assert (steps, none) == (30, 0)
    assert first == second
    assert all(map(torch.equal, first_weights, second_weights))


def test_the_checkpoint_of_another_run_is_refused(tmp_path, direct):
    def run(seed: int, criterion: nn.Module, metric=average_precision_score) -> None:
        options = {"settings": SHORT, "metric": metric, "checkpoint": Checkpoint(tmp_path / "run.safetensors")}
        train(build_mlp(4), criterion, noisy_samples(seed), noisy_samples(1), **options)

    run(0, direct)
    for other in ((2, direct), (0, tl.DirectLoss("roc_auc")), (0, direct, roc_auc_score)):
        with pytest.raises(ValueError, match="belongs to another run"):
            run(*other)
    (tmp_path / "run.safetensors").write_bytes(b"no checkpoint")
    with pytest.raises(ValueError, match="not written by taskloss, or is damaged"):
        run(0, direct)


def test_without_validation_all_steps_are_taken_and_the_last_weights_kept(direct):
    data, model = noisy_samples(0), build_mlp(4)
    settings = TrainingSettings(iterations=7, optimizer="sgd", learning_rate=0.5, weight_decay=0.1)
    result = train(model, direct, data, None, settings=settings)
    assert len(result.losses) == result.best_iteration == 7
    assert result.metrics == ()
    assert math.isnan(result.best_metric)
    expected = build_mlp(4)
    optimizer = torch.optim.SGD(expected.parameters(), lr=0.5, weight_decay=0.1)
    for _ in range(7):
        optimizer.zero_grad()
        direct(expected(data.features), data.target).backward()
        optimizer.step()
    for mine, theirs in zip(model.parameters(), expected.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_a_step_in_parts_is_the_same_step(direct):
    whole, parts = build_mlp(4).double(), build_mlp(4).double()
    data = noisy_samples(0)._replace(features=noisy_samples(0).features.double())
    for model, rows in ((whole, None), (parts, 7)):
        train(model, direct, data, None, settings=TrainingSettings(iterations=5, backward_rows=rows))
    for mine, theirs in zip(parts.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs)


class _Rates(torch.optim.SGD):
    """Plain SGD that remembers the learning rates of its steps."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.seen = []

    def step(self, closure=None):
        self.seen.append(self.param_groups[0]["lr"])
        return super().step(closure)


def test_the_learning_rate_falls_when_it_should(direct, monkeypatch):
    made = []

    def make(*arguments, **options):
        made.append(_Rates(*arguments, **options))
        return made[-1]

    monkeypatch.setitem(training_settings.OPTIMIZERS, "sgd", make)
    settings = TrainingSettings(iterations=5, optimizer="sgd", learning_rate=0.8, decay_after=(2, 4), decay=0.5)
    train(build_mlp(4), direct, noisy_samples(0), None, settings=settings)
    assert made[0].seen == [0.8, 0.8, 0.4, 0.4, 0.2]


def test_an_optimizer_of_the_callers_own_keeps_its_rate(direct):
    model = build_mlp(4)
    optimizer = _Rates(model.parameters(), lr=0.7)
    settings = TrainingSettings(iterations=3, learning_rate=0.1, decay_after=(1,))
    train(model, direct, noisy_samples(0), None, settings=settings, optimizer=optimizer)
    assert optimizer.seen == [0.7] * 3


@pytest.mark.parametrize(("name", "value"), [("decay_after", (0,)), ("decay_after", (1.5,)), ("decay", 0.0), ("decay", -1.0)])
def test_decays_are_checked(name, value):
    with pytest.raises((ValueError, TypeError), match=name):
        TrainingSettings(**{name: value})
