"""The runs behind ``taskloss compare``: for each seed one split, and every method trained and tested on it."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.model_selection import GroupShuffleSplit, train_test_split

from taskloss._storage import replace_file
from taskloss.cli.data import Samples
from taskloss.cli.errors import BAD_DATA, CommandError
from taskloss.cli.methods import BASELINE, CONTENDER, Method
from taskloss.cli.metric import Metric, parse_metric
from taskloss.cli.outcome import Part
from taskloss.report import Run, describe_curves, describe_thresholds, thin_curve
from taskloss.report.files import restore

TEST_FRACTION = 0.4
LEAST_OF_A_CLASS = 10
LEAST_QUERIES = 10


@dataclass(frozen=True)
class Plan:
    """What is compared."""

    metric: Metric
    methods: dict[str, Method]
    """By the name of the table."""
    splits: int
    seed: int
    """Of the first split; the next ones follow."""


def check_size(samples: Samples) -> None:
    """Refuse data that cannot be split into training, validation and test samples with both classes in each."""
    card = samples.card
    if card.groups:
        if card.groups < LEAST_QUERIES:
            raise CommandError(f"{card.name} has {card.groups} queries; a comparison needs at least {LEAST_QUERIES}", BAD_DATA)
        return
    rarer = min(card.positives, card.samples - card.positives)
    if rarer < LEAST_OF_A_CLASS:
        raise CommandError(
            f"{card.name} has only {rarer} samples of the rarer class; a comparison needs at least {LEAST_OF_A_CLASS}, so that "
            "training, validation and test samples have some",
            BAD_DATA,
        )


def run_trials(
    samples: Samples, plan: Plan, *, journal: Journal, jobs: int, on_progress: Callable[[float, str], None]
) -> tuple[tuple[Run, ...], dict[str, str]]:
    """All the methods on all the splits: the runs, and the methods that failed with the reason.

    A method that cannot be trained on these data (its inference would take too much memory) is left out; baseline and contender
    must not fail.

    Args:
        samples: the data.
        plan: what to compare.
        journal: the runs that are done, from an interrupted comparison too.
        jobs: runs at the same time, each in a process of its own; the results do not depend on it.
        on_progress: hears how many runs are done, a single one at work as a fraction, and what is being done.
    """
    todo = [
        (name, seed)
        for seed in range(plan.seed, plan.seed + plan.splits)
        for name in plan.methods
        if journal.find(name, seed) is None
    ]
    on_progress(len(journal), "Training")
    work = _in_turn if jobs == 1 or len(todo) < 2 else _at_once
    failed: dict[str, str] = {}
    for name, result in work(
        samples, plan, todo, failed, min(jobs, len(todo)), lambda share, now: on_progress(len(journal) + share, now)
    ):
        if isinstance(result, Run):
            journal.add(result)
        elif name in (BASELINE, CONTENDER):
            raise CommandError(f"{name} cannot be trained on these data: {result}", BAD_DATA)
        else:
            failed[name] = result
        on_progress(len(journal), "Training")
    runs = [journal.find(name, plan.seed + place) for place in range(plan.splits) for name in plan.methods if name not in failed]
    return tuple(run for run in runs if run is not None), failed


Result = tuple[str, Run | str]
"""The name of a method, and its run or why there is none."""


def _in_turn(
    samples: Samples,
    plan: Plan,
    todo: list[tuple[str, int]],
    failed: Mapping[str, str],
    jobs: int,
    on_progress: Callable[[float, str], None],
) -> Iterator[Result]:
    parts: tuple[int, tuple[Part, Part]] | None = None
    for name, seed in todo:
        if name in failed:
            continue
        if parts is None or parts[0] != seed:
            parts = (seed, split_samples(samples, seed))
        now = f"{name}, split {seed - plan.seed + 1} of {plan.splits}"
        on_progress(0.0, now)
        # mypy infers no type for a lambda with a default.
        yield train_and_test(name, plan, parts[1], seed, lambda share, now=now: on_progress(share, now))  # type: ignore[misc]


def _at_once(
    samples: Samples,
    plan: Plan,
    todo: list[tuple[str, int]],
    failed: Mapping[str, str],
    jobs: int,
    on_progress: Callable[[float, str], None],
) -> Iterator[Result]:
    # Spawned, not forked: a fork of a process with threads (torch, Arrow) may hang.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_end_with_parent, initargs=(os.getpid(),)) as pool:
        try:
            for future in as_completed([pool.submit(_run_apart, name, plan, samples, seed) for name, seed in todo]):
                yield future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                process.terminate()
            raise


def _run_apart(name: str, plan: Plan, samples: Samples, seed: int) -> Result:
    return train_and_test(name, plan, split_samples(samples, seed), seed, lambda share: None)


def _end_with_parent(parent: int) -> None:
    """A worker must not outlive a command that was killed, and leaves Ctrl-C to it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def train_and_test(name: str, plan: Plan, parts: tuple[Part, Part], seed: int, on_progress: Callable[[float], None]) -> Result:
    """One run of a method, as a record."""
    training, test = parts
    start = time.perf_counter()
    try:
        with one_thread():
            outcome = plan.methods[name].fit(training, test, plan.metric, seed, on_progress)
    except (ValueError, MemoryError) as error:
        return name, str(error) or "out of memory"
    seconds = time.perf_counter() - start
    steps, learning = thin_curve(outcome.course)
    curves = thresholds = None
    if test.groups is None:
        curves = describe_curves(outcome.scores, test.target, outcome.probabilities)
        if seed == plan.seed:
            thresholds = describe_thresholds(outcome.scores, test.target, outcome.threshold)
    others = {}
    for other in ("ndcg", "average_precision") if test.groups is not None else ("average_precision", "roc_auc", "f_score"):
        metric = parse_metric(other, queries=test.groups is not None)
        others[metric.label] = outcome.value(metric, test)
    value = outcome.value(plan.metric, test)
    return name, Run(name, seed, value, others, steps, learning, outcome.best_step, round(seconds, 3), curves, thresholds)


def split_samples(samples: Samples, seed: int) -> tuple[Part, Part]:
    """Training and test samples of a seed: the same share of positives in both, or whole queries.

    What the encoder learns from the columns (medians, categories), it learns from the training samples.
    """
    rows = np.arange(len(samples.target))
    if samples.groups is None:
        training, test = train_test_split(rows, test_size=TEST_FRACTION, stratify=samples.target, random_state=seed)
    else:
        splitter = GroupShuffleSplit(1, test_size=TEST_FRACTION, random_state=seed)
        training, test = next(splitter.split(rows, groups=samples.groups))
    features = samples.features(training)
    first, second = (
        Part(features[part], samples.target[part], None if samples.groups is None else samples.groups[part])
        for part in (training, test)
    )
    return first, second


@contextmanager
def one_thread() -> Iterator[None]:
    """Sums that do not depend on the number of cores; for networks this small it is also faster."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class Journal:
    """The runs that are done, kept in a file after each, so that an interrupted comparison can go on."""

    NAME = "unfinished.json"

    def __init__(self, folder: Path, samples: Samples, plan: Plan, *, resume: bool) -> None:
        self._path = folder / self.NAME
        self._of = _digest(samples, plan)
        self._runs: dict[tuple[str, int], Run] = {}
        if resume and self._path.exists():
            self._runs = self._read()

    def _read(self) -> dict[tuple[str, int], Run]:
        try:
            record = json.loads(self._path.read_bytes())
            of, runs = record["of"], [restore(Run, run, "runs") for run in record["runs"]]
        except (ValueError, KeyError, TypeError) as error:
            raise CommandError(f"{self._path} is damaged ({error}); remove it, or leave out --resume", BAD_DATA) from error
        if of != self._of:
            raise CommandError(
                f"{self._path} belongs to another comparison: the data, the metric, the methods or the settings differ. "
                "Leave out --resume to start anew"
            )
        return {(run.method, run.seed): run for run in runs}

    def __len__(self) -> int:
        return len(self._runs)

    def find(self, method: str, seed: int) -> Run | None:
        """The run, if it is done."""
        return self._runs.get((method, seed))

    def add(self, run: Run) -> None:
        """Keep a run."""
        self._runs[run.method, run.seed] = run
        record: dict[str, Any] = {"of": self._of, "runs": [asdict(done) for done in self._runs.values()]}
        replace_file(self._path, json.dumps(record).encode())

    def remove(self) -> None:
        """The comparison is complete."""
        self._path.unlink(missing_ok=True)


def _digest(samples: Samples, plan: Plan) -> str:
    """The same for the same data and settings; more or fewer splits are the same comparison."""
    digest = hashlib.sha256(repr((plan.metric.task, plan.methods, plan.seed, samples.encoder.to_dict())).encode())
    digest.update(samples.features(np.arange(len(samples.target))).tobytes())
    digest.update(samples.target.tobytes())
    return digest.hexdigest()
