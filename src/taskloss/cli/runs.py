"""The runs of a comparison: every method trained and tested on every split, one after another or in several processes."""

from __future__ import annotations

import functools
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator

from taskloss._processes import run_in_processes, single_thread
from taskloss.cli.data import TableSamples
from taskloss.cli.errors import BAD_DATA, CommandError
from taskloss.cli.feature_effects import measure_effects
from taskloss.cli.journal import Journal
from taskloss.cli.method_table import BASELINE, CONTENDER
from taskloss.cli.methods import Plan
from taskloss.cli.metric import parse_metric
from taskloss.cli.splits import Subset, split_samples
from taskloss.cli.time_left import comparison_seconds_left
from taskloss.report import Run, describe_classes, describe_curves, describe_thresholds, thin_curve

OTHER_METRICS = ("average_precision", "roc_auc", "f_score")
OTHER_METRICS_OF_CLASSES = ("multi_class", "f_score", "roc_auc", "average_precision")
OTHER_METRICS_OF_QUERIES = ("ndcg", "average_precision")
"""Metrics that every run is tested on, besides the one it is trained for."""

RunOrReason = tuple[str, Run | str]
"""The label of a method, and its run or the reason why it failed."""


def run_comparison(
    samples: TableSamples, plan: Plan, *, journal: Journal, jobs: int, on_progress: Callable[[float, str, float | None], None]
) -> tuple[tuple[Run, ...], dict[str, str]]:
    """Train and test every method on every split; return the runs, and the reasons of the methods that failed.

    A method that cannot be trained on these data (its inference would take too much memory, for example) is left out. It is an
    error if baseline or contender fail.

    Args:
        samples: the data.
        plan: what to compare.
        journal: finished runs, those of an interrupted comparison included; new ones are added.
        jobs: number of processes; the results do not depend on it.
        on_progress: called with the number of finished runs (plus the fraction of the one at work, if there is only one
            process), a description of the current work, and the seconds left, None while they are not known.
    """
    todo = [
        (method, seed)
        for seed in range(plan.seed, plan.seed + plan.splits)
        for method in plan.methods
        if journal.find(method, seed) is None
    ]
    failed: dict[str, str] = {}
    jobs = max(1, min(jobs, len(todo)))
    current_start = time.perf_counter()

    def report(share: float, current: str) -> None:
        spent = time.perf_counter() - current_start if jobs == 1 else 0.0
        on_progress(len(journal) + share, current, _seconds_left(plan, journal, failed, jobs, spent))

    report(0.0, "Training")
    if jobs == 1:
        # Runs of a method that has failed are skipped; the generator reads ``failed`` as it goes.
        remaining = (run for run in todo if run[0] not in failed)
        results = _run_here(samples, plan, remaining, report)
    else:
        results = run_in_processes(_split_train_and_test, [(method, plan, samples, seed) for method, seed in todo], jobs)
    for method, result in results:
        if isinstance(result, Run):
            journal.add(result)
        elif method in (BASELINE, CONTENDER):
            raise CommandError(f"{method} cannot be trained on these data: {result}", BAD_DATA)
        else:
            failed[method] = result
        current_start = time.perf_counter()
        report(0.0, "Training")
    seeds = range(plan.seed, plan.seed + plan.splits)
    runs = [journal.find(method, seed) for seed in seeds for method in plan.methods if method not in failed]
    return tuple(run for run in runs if run is not None), failed


def _seconds_left(plan: Plan, journal: Journal, failed: Collection[str], jobs: int, spent: float) -> float | None:
    """Return the seconds that the runs which are not finished take, by the finished runs of the same method."""
    finished: dict[str, list[float]] = {method: [] for method in plan.methods if method not in failed}
    for method in finished:
        runs = (journal.find(method, seed) for seed in range(plan.seed, plan.seed + plan.splits))
        finished[method] = [run.seconds for run in runs if run is not None]
    waiting = {method: plan.splits - len(seconds) for method, seconds in finished.items()}
    return comparison_seconds_left(finished, waiting, jobs, spent)


def _run_here(
    samples: TableSamples, plan: Plan, todo: Iterable[tuple[str, int]], on_progress: Callable[[float, str], None]
) -> Iterator[RunOrReason]:
    """Yield the runs, one after another in this process."""
    split: tuple[int, tuple[Subset, Subset]] | None = None
    for method, seed in todo:
        if split is None or split[0] != seed:
            split = (seed, split_samples(samples, seed))
        description = f"{method}, split {seed - plan.seed + 1} of {plan.splits}"
        on_progress(0.0, description)
        # mypy infers no type for a lambda with a default.
        yield train_and_test(method, plan, split[1], seed, lambda share, now=description: on_progress(share, now))  # type: ignore[misc]


def _split_train_and_test(method: str, plan: Plan, samples: TableSamples, seed: int) -> RunOrReason:
    return train_and_test(method, plan, split_samples(samples, seed), seed, lambda share: None)


def train_and_test(
    method: str, plan: Plan, split: tuple[Subset, Subset], seed: int, on_progress: Callable[[float], None]
) -> RunOrReason:
    """Train a method on one split and return the record of its test."""
    training, test = split
    start = time.perf_counter()
    try:
        with single_thread(), warnings.catch_warnings():
            # What a loss advises those who call it from Python; a network that learned nothing shows in the table.
            warnings.simplefilter("ignore", UserWarning)
            result = plan.methods[method].fit(training, test, plan.metric, seed, on_progress)
    except (ValueError, MemoryError) as error:
        return method, str(error) or "out of memory"
    seconds = time.perf_counter() - start
    queries, several = test.groups is not None, plan.metric.classes > 2
    steps, learning = thin_curve(result.validation_metric)
    names = OTHER_METRICS_OF_QUERIES if queries else OTHER_METRICS_OF_CLASSES if several else OTHER_METRICS
    others = [parse_metric(name, queries=queries, classes=plan.metric.classes) for name in names]
    with single_thread():
        effects = measure_effects(result.score, functools.partial(result.value, plan.metric), test, seed)
    one_list = not queries and not several
    return method, Run(
        method=method,
        seed=seed,
        value=result.value(plan.metric, test),
        others={metric.label: result.value(metric, test) for metric in others},
        steps=steps,
        learning=learning,
        best_step=result.best_step,
        seconds=round(seconds, 3),
        curves=describe_curves(result.scores, test.target, result.probabilities) if one_list else None,
        thresholds=describe_thresholds(result.scores, test.target, result.threshold) if one_list and seed == plan.seed else None,
        effects=effects,
        classes=describe_classes(result.scores, test.target, result.probabilities) if several else None,
    )
