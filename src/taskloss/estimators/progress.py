"""Lines of progress on standard output, as ``verbose`` asks for them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from taskloss.training import Progress

EVERY = 50
"""Number of steps between two lines about a member."""


class ProgressPrinter:
    """A callback that prints the progress of the members and passes it on to another callback."""

    def __init__(
        self,
        metric: str,
        steps: Mapping[str, int],
        members: int,
        verbose: int,
        callback: Callable[[int, Progress], None] | None,
    ) -> None:
        """Take the largest number of steps of each method, in the order of training."""
        self._metric, self._steps, self._members = metric, tuple(steps.items()), members
        self._verbose, self._callback = verbose, callback
        self._start = time.perf_counter()

    def __call__(self, member: int, progress: Progress) -> None:
        """Print a line when a member begins and, if ``verbose`` is above 1, every few steps."""
        if progress.iteration == 1 or (self._verbose > 1 and progress.iteration % EVERY == 0):
            part, number = divmod(member, self._members)
            name, most = self._steps[part]
            method = f"{name}, " if len(self._steps) > 1 else ""
            print(
                f"{method}member {number + 1} of {self._members}, step {progress.iteration} of at most {most}: loss "
                f"{progress.loss:.4f}, held-out {self._metric} {progress.metric:.4f}, {time.perf_counter() - self._start:.1f} s",
                flush=True,
            )
        if self._callback is not None:
            self._callback(member, progress)
