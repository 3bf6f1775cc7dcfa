"""The training loop: deterministic, keeps the best weights, stops in time, leaves the caller's random state alone."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import taskloss as tl
from taskloss.metrics import average_precision_score
from taskloss.training import Progress, Samples, TrainingSettings, build_mlp, train

SHORT = TrainingSettings(iterations=30)


def noisy_samples(seed: int, n: int = 200) -> Samples:
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(n, 4, generator=generator)
    target = (features[:, 0] + torch.randn(n, generator=generator) > 1).long()
    return Samples(features, target)


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
        train(build_mlp(4), direct, noisy_samples(0), Samples(samples.features, torch.zeros_like(samples.target)))


def test_nothing_to_train_is_an_error(direct):
    with pytest.raises(ValueError, match="no parameters"):
        train(nn.Flatten(0), direct, noisy_samples(0), noisy_samples(1))


@pytest.mark.parametrize(
    "settings",
    [{"iterations": 0}, {"iterations": 2.5}, {"patience": True}, {"learning_rate": 0.0}, {"weight_decay": -1.0}],
)
def test_bad_settings(settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        TrainingSettings(**settings)
