"""The runs behind ``taskloss compare``: for each seed one split, one initial network, and every method trained on them."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from typing import NamedTuple

import numpy as np
import torch
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import QuantileTransformer
from torch import Tensor, nn

import taskloss
from taskloss.datasets import PAGE_BLOCKS_SOURCE, load_page_blocks
from taskloss.metrics import average_precision_score
from taskloss.report import Comparison, Run, precision_at_positives
from taskloss.training import HIDDEN, Criterion, Progress, Samples, TrainingSettings, build_mlp, train

BASELINE, CONTENDER = "cross-entropy", "direct AP"
TEST_FRACTION = 0.4
VALIDATION_FRACTION = 0.3
"""Of the samples that are not for the test."""


def compare_on_page_blocks(
    *, seeds: int, epsilon: float, settings: TrainingSettings, on_progress: Callable[[float], None]
) -> Comparison:
    """Cross-entropy and direct average precision on the bundled data set; arguments as for :func:`run_trials`."""
    features, target = load_page_blocks()
    direct = taskloss.DirectLoss("average_precision", epsilon=epsilon)
    methods: dict[str, Criterion] = {BASELINE: cross_entropy, CONTENDER: direct}
    return Comparison(
        data=PAGE_BLOCKS_SOURCE,
        samples=len(target),
        positives=int(target.sum()),
        test_fraction=TEST_FRACTION,
        baseline=BASELINE,
        contender=CONTENDER,
        runs=run_trials(features, target, methods, seeds=seeds, settings=settings, on_progress=on_progress),
        settings=_describe(epsilon, settings),
        command=f"taskloss compare --seeds {seeds} --epsilon {epsilon} --iterations {settings.iterations}",
        versions={
            "taskloss": taskloss.__version__,
            "Python": platform.python_version(),
            **{name: version(name) for name in ("torch", "numpy", "scikit-learn")},
        },
    )


def _describe(epsilon: float, settings: TrainingSettings) -> dict[str, str]:
    """What was done, for a reader of the report."""
    return {
        "Split": f"{1 - TEST_FRACTION:.0%} training, {TEST_FRACTION:.0%} test, stratified; {VALIDATION_FRACTION:.0%} of the "
        "training samples are held out for validation",
        "Features": "made normal by their quantiles in the training samples",
        "Network": f"hidden layers of {' and '.join(map(str, HIDDEN))} units, ReLU",
        "Optimizer": f"AdamW, full batch, learning rate {settings.learning_rate}, weight decay {settings.weight_decay}",
        "Stopping": f"at most {settings.iterations} steps, or {settings.patience} without a better validation AP; the weights "
        "with the best validation AP are tested",
        CONTENDER: f"DirectLoss(AveragePrecision(), epsilon={epsilon})",
        BASELINE: "binary cross-entropy of the same scores",
    }


def cross_entropy(scores: Tensor, target: Tensor) -> Tensor:
    """The loss that everybody starts from; scores are logits."""
    return nn.functional.binary_cross_entropy_with_logits(scores, target.to(scores.dtype))


def run_trials(
    features: np.ndarray,
    target: np.ndarray,
    methods: Mapping[str, Criterion],
    *,
    seeds: int,
    settings: TrainingSettings,
    on_progress: Callable[[float], None],
) -> tuple[Run, ...]:
    """All the methods on seeds 0, 1, ...; ``on_progress`` hears how many runs are done, the current one as a fraction."""
    runs: list[Run] = []

    def report(progress: Progress) -> None:
        on_progress(len(runs) + progress.iteration / settings.iterations)

    with _one_thread():
        for seed in range(seeds):
            split = split_samples(features, target, seed)
            for method, criterion in methods.items():
                runs.append(_run(method, criterion, split, seed, settings, report))
                on_progress(len(runs))
    return tuple(runs)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Sums that do not depend on the number of cores; for networks this small it is also faster."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class Split(NamedTuple):
    """The samples of one seed, ready for a network."""

    training: Samples
    validation: Samples
    test: Samples


def split_samples(features: np.ndarray, target: np.ndarray, seed: int) -> Split:
    """A random split with the same share of positives everywhere.

    Features become normal by their quantiles, whatever their units and tails; the quantiles are those of the training samples.
    """
    seen, test, seen_target, test_target = train_test_split(
        features, target, test_size=TEST_FRACTION, stratify=target, random_state=seed
    )
    training, validation, training_target, validation_target = train_test_split(
        seen, seen_target, test_size=VALIDATION_FRACTION, stratify=seen_target, random_state=seed
    )
    quantiles = QuantileTransformer(n_quantiles=min(1000, len(training)), output_distribution="normal", random_state=seed)
    quantiles.fit(training)

    def prepare(raw: np.ndarray, labels: np.ndarray) -> Samples:
        return Samples(torch.as_tensor(quantiles.transform(raw), dtype=torch.float32), torch.as_tensor(labels))

    return Split(prepare(training, training_target), prepare(validation, validation_target), prepare(test, test_target))


def _run(
    method: str, criterion: Criterion, split: Split, seed: int, settings: TrainingSettings, report: Callable[[Progress], None]
) -> Run:
    start = time.perf_counter()
    model = build_mlp(split.training.features.shape[1], seed=seed)
    result = train(model, criterion, split.training, split.validation, settings=settings, seed=seed, on_iteration=report)
    with torch.no_grad():
        scores = model(split.test.features).numpy()
    test_target = split.test.target.numpy()
    return Run(
        method=method,
        seed=seed,
        average_precision=float(average_precision_score(scores, test_target)),
        precision=tuple(precision_at_positives(scores, test_target).tolist()),
        best_iteration=result.best_iteration,
        iterations=len(result.losses),
        seconds=time.perf_counter() - start,
    )
