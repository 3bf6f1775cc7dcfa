"""Speed and memory of the losses, as ratios measured side by side in one run.

Machines differ and are noisy, so nothing here is an absolute time to beat: each row times two calls in turn, again and again,
and reports the ratio of their medians beside the target. The times are wall times, except those of ``small_batches``. Run it with
``make bench``.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba
import numpy as np
import torch
from benchmarks.measure import Row, at_least, at_most, duration, in_turn, one_thread, report
from tests.oracles.labelings import exhaustive_table
from tests.oracles.table import lean_table, textbook_table

import taskloss as tl
from taskloss.kernels.ranking.corridor import augment_average_precision_down
from taskloss.kernels.ranking.interleaving import natural_counts
from taskloss.kernels.ranking.isotonic import augment_convex
from taskloss.kernels.ranking.staircase import augment_any
from taskloss.kernels.ranking.terms import AVERAGE_PRECISION
from taskloss.kernels.sort import TwoLists, split_by_label
from taskloss.labelings import read_labelings


def example(shape: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return float32 scores and a target: 20% positives, shifted by one standard deviation."""
    generator = torch.Generator().manual_seed(0)
    target = torch.rand(shape, generator=generator) < 0.2
    return (torch.randn(shape, generator=generator) + target).requires_grad_(), target


def training_step(
    scores: torch.Tensor, target: torch.Tensor, task: tl.Task | str = "average_precision", **settings: Any
) -> Callable[[], None]:
    """Return a call that does forward and backward of the whole module."""
    criterion = tl.DirectLoss(task, **settings)

    def step() -> None:
        scores.grad = None
        criterion(scores, target).backward()

    return step


def against_sort() -> Iterator[Row]:
    """Compare positive AP with torch.sort of the same scores."""
    for n, bound in ((10**4, 1.5), (10**5, 1.0), (10**6, 1.0), (10**7, 1.0)):
        scores, target = example((n,))
        values = scores.detach()
        times = in_turn(training_step(scores, target), lambda values=values: torch.sort(values))
        yield at_most(f"positive AP, n = {n:,}, against torch.sort", times, bound)


def normal_lists(positives: int, negatives: int) -> TwoLists:
    """Return one ranking, positives shifted by one standard deviation."""
    rng = np.random.default_rng(0)
    labels = np.arange(positives + negatives) < positives
    scores = (rng.standard_normal(len(labels)) + labels).astype(np.float32)
    return split_by_label(scores, labels.astype(np.uint8), np.empty(0, np.int64), 1)


def against_the_table() -> Iterator[Row]:
    """Compare the kernels of average precision with the textbook dynamic program, as published and in a lean form."""
    size = "2,000 x 8,000"
    lists = normal_lists(2_000, 8_000)
    weight_of_loss, bounds = np.array([len(lists.negatives) / 2]), natural_counts(lists)[1]

    def table(algorithm: Callable[..., object], weight: float) -> Callable[[], object]:
        return lambda: algorithm(lists.positives, lists.negatives, weight)

    def positive_update() -> object:
        return augment_convex(lists, AVERAGE_PRECISION, weight_of_loss)

    def negative_update() -> object:
        return augment_average_precision_down(lists, bounds, -weight_of_loss)

    yield at_least(
        f"isotonic kernel against the paper's table, {size}", in_turn(positive_update, table(textbook_table, 1.0)), 300
    )
    yield at_least(f"isotonic kernel against a lean table, {size}", in_turn(positive_update, table(lean_table, 1.0)), 100)
    yield at_least(
        f"negative update against the paper's table, {size}", in_turn(negative_update, table(textbook_table, -1.0)), 10
    )
    yield at_least(f"negative update against a lean table, {size}", in_turn(negative_update, table(lean_table, -1.0)), 10)
    large = normal_lists(20_000, 80_000)
    large_weight, large_bounds = np.array([len(large.negatives) / 2]), natural_counts(large)[1]
    times = in_turn(
        lambda: augment_average_precision_down(large, large_bounds, -large_weight),
        lambda: augment_any(large, large_bounds, AVERAGE_PRECISION, -large_weight),
    )
    yield at_least("negative update against the staircase table, 20,000 x 80,000", times, 5)


def tasks_against_average_precision() -> Iterator[Row]:
    """Compare every other ranking task with average precision, both positive; then negative NDCG with positive AP."""
    scores, target = example((10**6,))
    average_precision = training_step(scores, target)
    for task in (
        tl.ROCAUC(),
        tl.PartialAUC(),
        tl.NDCG(),
        tl.ReciprocalRank(),
        tl.PrecisionAtRecall(),
        tl.PrecisionAtK(),
        tl.RecallAtPrecision(),
    ):
        times = in_turn(training_step(scores, target, task=task), average_precision)
        yield at_most(f"{type(task).__name__}, n = 1,000,000, against AP", times, 1.5)
    times = in_turn(training_step(scores, target, task=tl.NDCG(), update="negative"), average_precision)
    yield at_most("NDCG, negative update, n = 1,000,000, against positive AP", times, 30)


def queries() -> Iterator[Row]:
    """Compare many short rankings with a long one."""
    one = training_step(*example((10**6,)))
    scores, target = example((10_000, 100))
    yield at_most(
        "10,000 queries x 100, dim=1, against one list of 1,000,000", in_turn(training_step(scores, target, dim=1), one), 2.0
    )
    flat, flat_target = example((10**6,))
    groups = torch.arange(10_000).repeat(100)
    criterion = tl.DirectLoss("average_precision")

    def grouped() -> None:
        flat.grad = None
        criterion(flat, flat_target, groups=groups).backward()

    yield at_most("10,000 queries x 100, groups=, against one list of 1,000,000", in_turn(grouped, one), 2.0)


def f1(tp: np.ndarray, fp: np.ndarray, fn: np.ndarray, tn: np.ndarray) -> np.ndarray:
    """Compute the F-score as a metric that the library knows nothing about."""
    return 2 * tp / (2 * tp + fp + fn)


def labelings() -> Iterator[Row]:
    """Compare F-score and Jaccard index with torch.sort, also on images, and with tables of all pairs of counts."""
    scores, target = example((10**6,))
    values = scores.detach()
    for task in (tl.FScore(), tl.Jaccard()):
        for update in ("positive", "negative"):
            step = training_step(scores, target, task=task, update=update)
            times = in_turn(step, lambda: torch.sort(values))
            yield at_most(f"{type(task).__name__}, {update}, n = 1,000,000, against torch.sort", times, 2.0)

    rng = np.random.default_rng(0)
    labels = np.arange(10_000) < 2_000
    normal = (rng.standard_normal(len(labels)) + labels).astype(np.float32)
    falling = [np.sort(scores)[::-1].astype(np.float64) for scores in (normal[labels], normal[~labels])]
    _, read = read_labelings(normal, labels)
    for task in (tl.FScore(), tl.Jaccard()):
        weights = task.sample_weights(read)
        for update, weight in (("positive", 1.0), ("negative", -1.0)):
            times = in_turn(
                lambda task=task, weights=weights, weight=weight: task.augment(read, weights, weight),
                lambda task=task, weight=weight: exhaustive_table(*falling, weight, isinstance(task, tl.Jaccard)),
            )
            yield at_least(f"{type(task).__name__}, {update}, against a lean table, 2,000 x 8,000", times, 100)
    weights = tl.FScore().sample_weights(read)
    times = in_turn(lambda: tl.FScore().augment(read, weights, 1.0), lambda: tl.ConfusionMetric(f1).augment(read, weights, 1.0))
    yield at_least("FScore against ConfusionMetric, 2,000 x 8,000", times, 100)
    compiled, plain = tl.ConfusionMetric(numba.njit(f1)), tl.ConfusionMetric(f1)
    times = in_turn(lambda: compiled.augment(read, weights, 1.0), lambda: plain.augment(read, weights, 1.0))
    yield at_least("ConfusionMetric, compiled against numpy, 2,000 x 8,000", times, 2)

    images, masks = example((16, 512, 512))
    pixels = images.detach().reshape(-1)
    for update in ("positive", "negative"):
        times = in_turn(training_step(images, masks, task=tl.Jaccard(), update=update), lambda: torch.sort(pixels))
        yield at_most(f"Jaccard, {update}, 16 images of 512 x 512, against one torch.sort", times, 10.0)


def small_batches() -> Iterator[Row]:
    """Compare every task with one score per sample with BCEWithLogitsLoss on a batch of 64, by CPU time of one thread."""
    scores, target = example((64,))
    cross_entropy, labels = torch.nn.BCEWithLogitsLoss(), target.float()

    def baseline() -> None:
        scores.grad = None
        cross_entropy(scores, labels).backward()

    tasks = [name for name, task in tl.tasks.registered().items() if task.target_kind in ("binary", "graded", "labels")]
    with one_thread():
        for update in ("positive", "negative", "central"):
            measured = []
            for task in tasks:
                step = training_step(scores, target, task=task, update=update)
                times = in_turn(step, baseline, seconds=0.5, clock=time.process_time)
                measured.append((times[0] / times[1], task, times))
            measured.sort(key=lambda entry: entry[0])
            for rank, index in (("worst", -1), ("median", len(measured) // 2)):
                ratio, task, times = measured[index]
                title = f"{rank} of {len(tasks)} tasks ({task}), {update}, n = 64, against BCE"
                yield Row(title, *map(duration, times), ratio, "<= 2.5", ratio <= 2.5)


def classes() -> Iterator[Row]:
    """Compare class tasks with cross-entropy, forward and backward of both."""
    generator = torch.Generator().manual_seed(0)
    target = torch.randint(10, (10**6,), generator=generator)
    scores = (torch.randn(10**6, 10, generator=generator) + torch.nn.functional.one_hot(target, 10)).requires_grad_()

    def cross_entropy() -> None:
        scores.grad = None
        torch.nn.functional.cross_entropy(scores, target).backward()

    cost = [[abs(i - j) for j in range(10)] for i in range(10)]
    for name, task, bound in (("", tl.MultiClass(), 1.5), (" with costs", tl.MultiClass(cost), 1.5), ("", tl.TopKError(5), 3.0)):
        times = in_turn(training_step(scores, target, task=task), cross_entropy)
        yield at_most(f"{type(task).__name__}{name}, (1,000,000, 10), against cross-entropy", times, bound)


MEMORY_PROGRAM = """
import resource, torch, taskloss as tl
def step(n):
    generator = torch.Generator().manual_seed(0)
    target = torch.rand(n, generator=generator) < 0.2
    scores = (torch.randn(n, generator=generator) + target).requires_grad_()
    before = int(next(line for line in open("/proc/self/status") if line.startswith("VmRSS")).split()[1])
    tl.DirectLoss("average_precision")(scores, target).backward()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
step(1000)
print(step(10**7) * 1024 / (8 * 10**7))
"""


def memory() -> Iterator[Row]:
    """Measure the peak memory beyond the input, in arrays of n float64."""
    if not Path("/proc/self/status").exists():
        print("peak memory: needs /proc, not measured here")
        return
    arrays = float(subprocess.run([sys.executable, "-c", MEMORY_PROGRAM], capture_output=True, text=True, check=True).stdout)
    yield Row("peak extra memory, n = 10,000,000, in arrays of n float64", f"{arrays:.1f}", "", arrays, "< 15", arrays < 15)


def seconds_of(program: str) -> float:
    """Return the wall time of a Python program in a new process."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", program], check=True)
    return time.perf_counter() - start


FIRST_CALL_PROGRAM = """
import time, torch, taskloss as tl
scores, target = torch.randn(1000, requires_grad=True), torch.arange(1000) % 5 == 0
start = time.perf_counter()
for update in ("positive", "negative"):
    tl.DirectLoss("average_precision", update=update)(scores, target).backward()
print(time.perf_counter() - start)
"""


def start_up() -> Iterator[Row]:
    """Measure the time of the import, and of the first calls in a new process."""
    rounds = [(seconds_of("import taskloss"), seconds_of("import torch")) for _ in range(5)]
    yield at_most("import taskloss against import torch", tuple(map(statistics.median, zip(*rounds, strict=True))), 1.5)
    first = [
        float(subprocess.run([sys.executable, "-c", FIRST_CALL_PROGRAM], capture_output=True, text=True, check=True).stdout)
        for _ in range(4)
    ][-1]
    yield Row("first calls in a new process, kernels compiled before", f"{first * 1e3:.0f} ms", "", first, "< 1 s", first < 1)


COLD_PROGRAM = """
import sys, time, numba, torch, taskloss as tl, taskloss.lp
torch.set_num_threads(1)
numba.njit(lambda x: x + 1.0)(1.0)
scores, target = torch.linspace(-1, 1, 64, requires_grad=True), torch.arange(64) % 5 == 0
A = torch.linspace(0.1, 1.0, 200, dtype=torch.float64).reshape(10, 20).requires_grad_()
cost = -torch.linspace(1.0, 2.0, 20, dtype=torch.float64).expand(8, 20)
bound = torch.ones(10, dtype=torch.float64)
def call(name):
    if name == "program":
        tl.lp.LPLayer()(cost[0], A_ub=A, b_ub=bound, lower=0.0).x.sum().backward()
    elif name == "batch":
        tl.lp.LPLayer()(cost, A_ub=A, b_ub=bound, lower=0.0).x.sum().backward()
    else:
        tl.DirectLoss(name)(scores, target).backward()
for name in sys.argv[1:]:
    start = time.process_time()
    call(name)
    print(time.process_time() - start)
"""


def cold_seconds(*calls: str) -> list[float]:
    """Return the CPU seconds of calls in a new process, one after the other, without any compiled kernels."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", COLD_PROGRAM, *calls]
        environment = {**os.environ, "NUMBA_CACHE_DIR": folder, "OMP_NUM_THREADS": "1"}
        output = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
    return [float(line) for line in output.split()]


def first_calls() -> Iterator[Row]:
    """Measure first calls without compiled kernels: CPU seconds beyond the imports and one trivial compiled function."""

    def row(what: str, seconds: float, bound: float) -> Row:
        return Row(
            f"first {what}, nothing compiled, CPU seconds", f"{seconds:.1f} s", "", seconds, f"<= {bound:g}", seconds <= bound
        )

    names = [name for name, task in tl.tasks.registered().items() if task.target_kind in ("binary", "graded", "labels")]
    names.remove("average_precision")
    measured = [cold_seconds("average_precision", name) for name in names]
    yield row("average precision", statistics.median(first for first, _ in measured), 4)
    after, name = max((second, name) for (_, second), name in zip(measured, names, strict=True))
    yield row(f"other metric after it (the slowest, {name})", after, 4)
    program, batch = cold_seconds("program", "batch")
    yield row("LPLayer, forward and backward", program, 15)
    yield row("batch of programs after it", batch, 5)


PARTS = (
    *(against_sort, against_the_table, tasks_against_average_precision, queries, labelings, small_batches, classes),
    *(memory, start_up, first_calls),
)

if __name__ == "__main__":
    report(__doc__, PARTS)
