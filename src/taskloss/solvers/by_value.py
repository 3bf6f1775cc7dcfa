"""Settings that hold arrays: equality, hash and pickles by their values."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np


class ByValue:
    """Base of frozen dataclasses (``eq=False``) some of whose fields are arrays or scipy sparse matrices.

    Two of them are equal if the arguments of their constructors were. Copies and pickles are constructed again from these
    arguments, so that their arrays are read-only too.

    >>> from taskloss.solvers import Knapsack
    >>> Knapsack([1.0, 2.0], 3.0) == Knapsack(np.array([1, 2]), 3), Knapsack([1.0, 2.0], 3.0) == Knapsack([1.0, 2.0], 4.0)
    (True, False)
    """

    def _arguments(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.init}  # type: ignore[arg-type]  # Subclasses are dataclasses.

    def _key(self) -> tuple[Any, ...]:
        return tuple(_value_key(value) for value in self._arguments().values())

    def __eq__(self, other: object) -> bool:
        return self is other or (type(other) is type(self) and isinstance(other, ByValue) and self._key() == other._key())

    def __hash__(self) -> int:
        return hash((type(self), self._key()))

    def __reduce__(self) -> tuple[Any, ...]:
        return _construct, (type(self), self._arguments())


def _construct(cls: type[Any], arguments: dict[str, Any]) -> Any:
    return cls(**arguments)


def _value_key(value: Any) -> Any:
    """Return something hashable that is equal for equal values."""
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype.str, value.tobytes()
    if hasattr(value, "indptr"):
        return value.shape, *(_value_key(part) for part in (value.data, value.indices, value.indptr))
    return value
