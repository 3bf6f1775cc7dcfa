"""The bundled data sets as arguments of the commands: a name stands for the file."""

from __future__ import annotations

from pathlib import Path

from taskloss.datasets import BUNDLED, BundledSet


def find_bundled(data: Path) -> BundledSet | None:
    """Return the bundled data set that an argument names, None if it names none; a file of that name has priority."""
    return None if data.exists() else BUNDLED.get(str(data))


def resolve_data(data: Path) -> Path:
    """Return the path of a data file, or of the bundled data set that the argument names."""
    bundled = find_bundled(data)
    return data if bundled is None else bundled.path
