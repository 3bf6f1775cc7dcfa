"""Solutions that are kept: recalled for the same scores, or taken in place of a solve."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from taskloss import _checks, _output_checks, _solver_checks


class Counts(NamedTuple):
    """How the instances so far were answered."""

    recalled: int
    """The same scores had been solved before."""
    solved: int
    """By the solver."""
    pooled: int
    """By the best solution of the pool."""


class SolutionPool:
    """The state of a :class:`CachedSolver`: instances with their solutions, and the distinct solutions of late.

    All methods may be called from several threads. It can be pickled with its contents.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._lock = threading.Lock()
        self._by_scores: OrderedDict[bytes, np.ndarray] = OrderedDict()
        self._distinct: OrderedDict[bytes, np.ndarray] = OrderedDict()
        self._stacked: np.ndarray | None = None
        self._counts = [0, 0, 0]

    @property
    def counts(self) -> Counts:
        """How the instances so far were answered."""
        return Counts(*self._counts)

    def __len__(self) -> int:
        return len(self._distinct)

    def recall(self, keys: list[bytes]) -> list[np.ndarray | None]:
        """Return the solution of each instance, None where it is not known."""
        with self._lock:
            found = [self._by_scores.get(key) for key in keys]
            for key, psi in zip(keys, found, strict=True):
                if psi is not None:
                    self._by_scores.move_to_end(key)
                    self._counts[0] += 1
            return found

    def add(self, keys: list[bytes], solutions: np.ndarray, *, distinct: bool) -> None:
        """Keep the solutions of instances, and in the pool if ``distinct``; forget the oldest beyond the size."""
        with self._lock:
            self._counts[1] += len(keys)
            for key, psi in zip(keys, solutions, strict=True):
                # A copy of its own: the batch that it comes from can be forgotten.
                psi = psi.copy()
                self._by_scores[key] = psi
                if distinct and psi.tobytes() not in self._distinct:
                    self._distinct[psi.tobytes()] = psi
                    self._stacked = None
            for kept in (self._by_scores, self._distinct):
                while len(kept) > self.size:
                    kept.popitem(last=False)

    def check_shape(self, shape: tuple[int, ...]) -> None:
        """Check that instances have the shape of the distinct solutions, which may be taken for them."""
        with self._lock:
            pooled = next(iter(self._distinct.values()), None)
        if pooled is not None and pooled.shape != shape:
            raise ValueError(
                f"an instance has shape {shape} and the solutions of the pool have shape {pooled.shape}; with solve_ratio below "
                "1 all need the same shape: make a CachedSolver for each"
            )

    def best(self, scores: np.ndarray) -> np.ndarray:
        """Return the best solution of the pool for each instance ``(R, ...)``; of equally good ones the oldest."""
        with self._lock:
            if self._stacked is None:
                self._stacked = np.stack(list(self._distinct.values()))
            self._counts[2] += len(scores)
            pool = self._stacked
        totals = scores.reshape(len(scores), -1) @ pool.reshape(len(pool), -1).T
        return pool[totals.argmax(axis=1)]

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            state = {**self.__dict__, "_by_scores": self._by_scores.copy(), "_distinct": self._distinct.copy()}
        del state["_lock"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())


@dataclass(frozen=True, eq=False)
class CachedSolver:
    r"""A solver that keeps its solutions.

    By default it changes no answer: an instance whose scores were solved before, bit for bit, is not solved again. That saves the
    best answers under the true costs, which ``loss="regret"`` and the hinge need in every epoch, and repeated evaluations.

    With ``solve_ratio`` below 1 it approximates (Mulamba, Mandi, Diligenti, Lombardi, Bucarey and Guns, *Contrastive losses and
    solution caching for predict-and-optimize*, IJCAI 2021): an instance that is not known is solved with that probability, and
    otherwise answered by the best of the solutions found so far, an inner approximation of the feasible set. Then answers may
    score lower than the truth, so give :class:`~taskloss.Structured` ``on_worse="ignore"``; and an answer depends on the calls
    before it. Whether an instance is solved depends on the seed and its scores alone. Let :meth:`remember` solve the instances
    ``-true_costs`` first: they fill the pool, and regrets stay exact.

    The state is :attr:`pool`, which may be shared among threads. Two cached solvers are equal only if they are the same object;
    a copy or pickle has a pool of its own, with the same contents.

    Args:
        solver: the solver whose answers are kept.
        size: largest number of instances, and of distinct solutions, to keep; the oldest are forgotten.
        solve_ratio: probability of a solve.
        seed: of the choice.
        instance_dims: how many axes of the scores, the last ones, are one instance: 2 for grids and matrices.
        batched: whether the solver takes a batch, ``(R, ...)``.

    >>> from taskloss.solvers import TopK
    >>> solver = CachedSolver(TopK(1))
    >>> scores = np.array([[0.1, 0.7], [0.6, 0.2]])
    >>> solver(scores).tolist(), solver(scores[:1]).tolist()
    ([[0.0, 1.0], [1.0, 0.0]], [[0.0, 1.0]])
    >>> solver.pool.counts
    Counts(recalled=1, solved=2, pooled=0)
    """

    solver: Callable[[np.ndarray], Any]
    size: int = 10_000
    solve_ratio: float = 1.0
    seed: int = 0
    instance_dims: int = 1
    batched: bool = True
    pool: SolutionPool = field(init=False, repr=False)

    def __post_init__(self) -> None:
        _checks.check_callable("solver", self.solver, "the scores")
        _checks.check_count("size", self.size)
        _solver_checks.check_ratio("solve_ratio", self.solve_ratio)
        _checks.check_not_negative("seed", self.seed)
        _checks.check_count("instance_dims", self.instance_dims)
        _checks.check_flag("batched", self.batched)
        object.__setattr__(self, "pool", SolutionPool(self.size))

    def __call__(self, scores: np.ndarray) -> np.ndarray:
        """Return ``psi`` of the shape of ``scores``, one instance or any leading batch axes."""
        return self._answer(scores, self.solve_ratio)

    def remember(self, scores: np.ndarray) -> np.ndarray:
        """Return ``psi`` like a call, but solve every instance that is not known."""
        return self._answer(scores, 1.0)

    def _answer(self, scores: np.ndarray, solve_ratio: float) -> np.ndarray:
        array = np.ascontiguousarray(scores, np.float64)
        if array.ndim < self.instance_dims:
            raise ValueError(f"scores has shape {array.shape}; expected at least {self.instance_dims} axes (instance_dims)")
        instances = array.reshape(-1, *array.shape[array.ndim - self.instance_dims :])
        _checks.check_finite(array, None)
        if self.solve_ratio < 1.0:
            self.pool.check_shape(instances.shape[1:])
        # Instances of other shapes may have the same bytes.
        shape = np.array(instances.shape[1:]).tobytes()
        keys = [shape + instance.tobytes() for instance in instances]
        found = self.pool.recall(keys)
        unknown = {key: i for i, (key, psi) in enumerate(zip(keys, found, strict=True)) if psi is None}
        wanted = [i for key, i in unknown.items() if self._is_solved(key, solve_ratio)]
        if not len(self.pool):
            wanted = list(unknown.values())
        answers = {key: psi for key, psi in zip(keys, found, strict=True) if psi is not None}
        if wanted:
            solutions = self._solve(instances[wanted])
            # In ``remember``, the pool may be needed later although every instance is solved now.
            self.pool.add([keys[i] for i in wanted], solutions, distinct=self.solve_ratio < 1.0)
            answers.update((keys[i], psi) for i, psi in zip(wanted, solutions, strict=True))
        others = [i for key, i in unknown.items() if key not in answers]
        if others:
            answers.update((keys[i], psi) for i, psi in zip(others, self.pool.best(instances[others]), strict=True))
        psi = np.stack([answers[key] for key in keys]) if keys else np.zeros(instances.shape)
        return psi.reshape(array.shape)

    def _is_solved(self, key: bytes, solve_ratio: float) -> bool:
        """Draw whether an instance is solved, by a hash: the order of the calls does not matter."""
        digest = hashlib.blake2b(key, digest_size=8, key=self.seed.to_bytes(32, "little")).digest()
        return int.from_bytes(digest, "little") < solve_ratio * 2.0**64

    def _solve(self, instances: np.ndarray) -> np.ndarray:
        if self.batched:
            return _output_checks.as_features(self.solver(instances), instances.shape, False)
        return np.stack([_output_checks.as_features(self.solver(one), one.shape, False) for one in instances])
