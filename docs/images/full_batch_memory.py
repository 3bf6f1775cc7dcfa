"""Draw the peak memory of one gradient over more and more batches.

    PYTHONPATH=. python docs/images/full_batch_memory.py

``benchmarks/scaling.py`` measures it, in processes of their own.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.scaling import BATCH, METHODS, MIB, memory_by_count
from matplotlib.figure import Figure


def main() -> None:
    """Measure, print the figures, and write the picture beside this file."""
    figure = Figure(figsize=(6, 3.4), layout="constrained")
    axes = figure.subplots()
    for method in METHODS:
        peaks = memory_by_count(method)
        print(f"{method}: {', '.join(f'{peak / MIB:.0f} MiB with {count}' for count, peak in peaks.items())}")
        axes.plot(list(peaks), [peak / MIB for peak in peaks.values()], marker="o", label=method)
    axes.set(xlabel=f"batches of {BATCH} images", ylabel="peak memory, MiB", ylim=(0, None))
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(Path(__file__).with_suffix(".png"), dpi=110)


if __name__ == "__main__":
    main()
