"""Ratios of times measured side by side: the common tools of the speed benchmarks."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

Call = Callable[[], object]


@dataclass(frozen=True)
class Row:
    """One measured ratio; a row without a target is for information."""

    what: str
    ours: str
    theirs: str
    ratio: float
    target: str
    ok: bool


def in_turn(
    ours: Call, theirs: Call, seconds: float = 4.0, clock: Callable[[], float] = time.perf_counter
) -> tuple[float, float]:
    """Measure two calls in turn and return their times in seconds, from the round with the median ratio of at least five.

    Calls are repeated within a round for about a tenth of a second, and the round takes their median: right after the other
    call, a call pays for caches and threads that the other left behind (a call of 60 us is slower for about the first twenty).
    """
    ours()
    theirs()
    calls = (ours, theirs)
    repeats = [max(1, int(0.1 / median_time(call, 1, clock))) for call in calls]
    rounds: list[tuple[float, float]] = []
    end = time.perf_counter() + seconds
    while len(rounds) < 5 or (time.perf_counter() < end and len(rounds) < 200):
        our_time, their_time = (median_time(call, count, clock) for call, count in zip(calls, repeats, strict=True))
        rounds.append((our_time, their_time))
    return sorted(rounds, key=lambda pair: pair[0] / pair[1])[len(rounds) // 2]


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Give torch one thread; the rows are then measured with ``clock=time.process_time``, the CPU time of the process.

    Other programs on the machine distort CPU time less than wall time. A library that starts threads of its own is charged for
    all of them. Enclose a whole part rather than single rows: torch's batched LU fails in MKL once the number of threads was
    lowered and raised again.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def median_time(call: Call, repeats: int, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the median time of consecutive calls, in seconds."""
    times = []
    for _ in range(repeats):
        start = clock()
        call()
        times.append(clock() - start)
    return statistics.median(times)


def duration(seconds: float) -> str:
    """Write a time for the table.

    >>> duration(0.00025), duration(0.0125)
    ('0.250 ms', '12.50 ms')
    """
    milliseconds = 1e3 * seconds
    return f"{milliseconds:.3f} ms" if milliseconds < 1.0 else f"{milliseconds:.2f} ms"


def at_most(what: str, times: tuple[float, float], bound: float) -> Row:
    """Return a row whose target is that ours takes at most ``bound`` times as long as theirs."""
    ratio = times[0] / times[1]
    return Row(what, duration(times[0]), duration(times[1]), ratio, f"<= {bound}", ratio <= bound)


def at_least(what: str, times: tuple[float, float], bound: float | None) -> Row:
    """Return a row whose target is that theirs takes at least ``bound`` times as long as ours; ``None``: no target."""
    ratio = times[1] / times[0]
    target = "" if bound is None else f">= {bound:g} times faster"
    return Row(what, duration(times[0]), duration(times[1]), ratio, target, bound is None or ratio >= bound)


def is_installed(package: str) -> bool:
    """Return whether a peer is installed; print that its rows are left out otherwise."""
    found = importlib.util.find_spec(package) is not None
    if not found:
        print(f"{package} is not installed: its rows are skipped (pip install '.[peers]'; qpth: pip install --no-deps qpth)")
    return found


def report(description: str | None, parts: Sequence[Callable[[], Iterator[Row]]]) -> None:
    """Run a benchmark from the command line: measure all parts, or those named, and print the table row by row."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = {part.__name__: part for part in parts}
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"what to measure, of: {', '.join(names)} (default: all)")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.parts if name not in names]:
        parser.error(f"no part {unknown[0]!r}; there are {', '.join(names)}")
    load = f", load {os.getloadavg()[0]:.1f} at the start" if hasattr(os, "getloadavg") else ""
    machine = f"{torch.get_num_threads()} threads, {platform.machine()}, Python {platform.python_version()}{load}"
    print(f"torch {torch.__version__}, {machine}")
    rows = []
    for name in arguments.parts or names:
        print(f"{name}: {(names[name].__doc__ or '').splitlines()[0]}")
        for row in names[name]():
            rows.append(row)
            verdict = "" if not row.target else "ok" if row.ok else "MISSED"
            print(f"{row.what:<66}{row.ours:>11}{row.theirs:>11}{row.ratio:>9.2f}  {row.target:<22}{verdict}", flush=True)
    if arguments.json:
        write_json(arguments.json, [asdict(row) for row in rows])


def write_json(path: Path, content: object) -> None:
    """Write a JSON file in one step: a reader sees either the old content or all of the new one."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.write_text(json.dumps(content, indent=1))
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
