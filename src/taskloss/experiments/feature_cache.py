"""Arrays that take long to compute, such as features of a pretrained network, kept in a file."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np


def cached_arrays(path: Path, make: Callable[[], dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Read the arrays from the ``.npz`` file at ``path``; if it is missing or damaged, make them and write the file.

    The file is written completely or not at all, and its folder is created. Nothing compares the file with ``make``, so the name
    of the file should say everything that the arrays depend on: the data, the network and the number of samples.
    """
    stored = _read_arrays(path)
    if stored is not None:
        return stored
    arrays = make()
    _write_arrays(path, arrays)
    return arrays


def _read_arrays(path: Path) -> dict[str, np.ndarray] | None:
    """Return the arrays of the file, or None if there is no file or it is damaged; zip files have checksums."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return None
    with file:
        try:
            with np.load(file, allow_pickle=False) as arrays:
                return dict(arrays)
        except Exception:  # A damaged file can raise nearly anything, from BadZipFile to RuntimeError.
            return None


def _write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write the file as ``_storage.replace_file`` does, but without a copy in memory, for which the arrays may be too large."""
    objects = [name for name, array in arrays.items() if np.asarray(array).dtype.hasobject]
    if objects:
        raise ValueError(f"arrays of Python objects cannot be cached without pickle: {', '.join(objects)}; convert their dtype")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]  # mypy takes the names for numpy's own keyword allow_pickle.
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
