"""Estimates of the time that a command still needs. Where nothing is known yet, they are None rather than a guess."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

MIN_STEPS = 5
"""Steps of a phase before its speed is known; the first one may include compilation."""


class TrainingClock:
    """The progress of an ensemble, from the steps of its members.

    A member may begin with a warm-up, whose steps take far less time than the later ones; its steps are counted from 1 in both.
    The time is therefore estimated from the steps of the current phase, and from whole members once there are some.

    Args:
        costs: the time that each member takes, in any unit: trees take far less than networks.
        steps: largest number of steps of each member.
        warm_up: whether the members begin with a warm-up.
        now: the clock, in seconds.
    """

    def __init__(
        self, costs: Sequence[float], steps: Sequence[int], *, warm_up: bool, now: Callable[[], float] = time.perf_counter
    ) -> None:
        self._costs, self._steps, self._warm_up, self._now = costs, steps, warm_up, now
        self._member, self._earlier, self._last = 0, 0, 0
        self._moment = now()
        self._phase_steps = 0
        # The first step of a phase is not timed: it may include compilation, and the end of what came before.
        self._phase_seconds = self._member_seconds = 0.0
        self._finished: list[float] = []

    def update(self, member: int, step: int) -> tuple[float, float | None]:
        """Take note of a step of a member; return the share of the training that is done, and the seconds left."""
        moment, self._moment = self._moment, self._now()
        if member != self._member:
            self._finished.append(self._member_seconds)
            self._member, self._earlier, self._member_seconds = member, 0, 0.0
            self._phase_steps, self._phase_seconds = 0, 0.0
        elif step <= self._last:
            self._earlier += self._last
            self._phase_steps, self._phase_seconds = 0, 0.0
        self._last = step
        self._phase_steps += 1
        if self._phase_steps > 1:
            self._phase_seconds += self._moment - moment
            self._member_seconds += self._moment - moment
        done = min(1.0, (self._earlier + step) / self._steps[member])
        share = (sum(self._costs[:member]) + done * self._costs[member]) / sum(self._costs)
        return min(1.0, share), self._seconds_left(done)

    def _seconds_left(self, done: float) -> float | None:
        own, waiting = self._costs[self._member], sum(self._costs[self._member + 1 :])
        rest = None
        if self._phase_steps >= MIN_STEPS and not (self._warm_up and not self._earlier):
            rest = self._phase_seconds / (self._phase_steps - 1) * (1.0 - done) * self._steps[self._member]
        if self._finished:
            rate = sum(self._finished) / sum(self._costs[: self._member])
            usual = max(0.0, rate * own - self._member_seconds)
            return (usual if rest is None else min(usual, rest)) + rate * waiting
        return None if rest is None else rest + waiting / own * (self._member_seconds + rest)


def comparison_seconds_left(
    finished: Mapping[str, Sequence[float]], waiting: Mapping[str, int], jobs: int, spent: float = 0.0
) -> float | None:
    """Return the seconds that the waiting runs of a comparison take; None while a method has no finished run.

    Args:
        finished: the seconds of the finished runs of each method.
        waiting: the number of runs of each method that are not finished.
        jobs: number of processes.
        spent: seconds that the runs at work have taken already.

    >>> comparison_seconds_left({"a": [2.0], "b": [60.0]}, {"a": 1, "b": 2}, jobs=2)
    61.0
    >>> comparison_seconds_left({"a": [2.0]}, {"a": 1, "b": 2}, jobs=2) is None
    True
    """
    needed = {method: runs for method, runs in waiting.items() if runs}
    if any(not finished.get(method) for method in needed):
        return None
    total = sum(runs * sum(finished[method]) / len(finished[method]) for method, runs in needed.items())
    return max(0.0, total - spent) / jobs


def spell_duration(seconds: float) -> str:
    """Return a duration as people say it.

    >>> spell_duration(7.4), spell_duration(200), spell_duration(7500)
    ('7 s', '3 min', '2 h 5 min')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
