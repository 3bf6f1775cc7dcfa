"""Ratios of times measured side by side: the common tools of the speed benchmarks."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch


@dataclass(frozen=True)
class Row:
    """One measured ratio."""

    what: str
    ours: str
    theirs: str
    ratio: float
    target: str
    ok: bool


def in_turn(ours: Callable[[], object], theirs: Callable[[], object], seconds: float = 4.0) -> tuple[float, float]:
    """Times of two calls, in seconds, measured in turn: those of the round whose ratio is the median of at least five.

    Calls are repeated within a round, for about a tenth of a second, and their median is the round's: right after the other one,
    a call pays for caches and threads that the other left behind (a call of 60 us is slower for about the first twenty).
    """
    ours()
    theirs()
    calls = (ours, theirs)
    repeats = [max(1, int(0.1 / median_time(call, 1))) for call in calls]
    rounds: list[tuple[float, float]] = []
    end = time.perf_counter() + seconds
    while len(rounds) < 5 or (time.perf_counter() < end and len(rounds) < 200):
        one, other = (median_time(call, count) for call, count in zip(calls, repeats, strict=True))
        rounds.append((one, other))
    return sorted(rounds, key=lambda pair: pair[0] / pair[1])[len(rounds) // 2]


def median_time(call: Callable[[], object], repeats: int) -> float:
    """Median time of some calls in a row."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def at_most(what: str, times: tuple[float, float], limit: float) -> Row:
    """Ours may take at most ``limit`` times as long as theirs."""
    ratio = times[0] / times[1]
    return Row(what, f"{times[0] * 1e3:.2f} ms", f"{times[1] * 1e3:.2f} ms", ratio, f"<= {limit}", ratio <= limit)


def at_least(what: str, times: tuple[float, float], limit: float) -> Row:
    """Theirs must take at least ``limit`` times as long as ours."""
    ratio = times[1] / times[0]
    return Row(what, f"{times[0] * 1e3:.2f} ms", f"{times[1] * 1e3:.2f} ms", ratio, f">= {limit:g} times faster", ratio >= limit)


def report(description: str | None, parts: Sequence[Callable[[], Iterator[Row]]]) -> None:
    """The command line of a benchmark: measure all the parts, or those named, and print a table row by row."""
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
        for row in names[name]():
            rows.append(row)
            verdict = "" if not row.target else "ok" if row.ok else "MISSED"
            print(f"{row.what:<66}{row.ours:>11}{row.theirs:>11}{row.ratio:>9.2f}  {row.target:<22}{verdict}", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))
