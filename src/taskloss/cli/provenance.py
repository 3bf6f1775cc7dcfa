"""What one needs to get the same again: the command, and the versions."""

from __future__ import annotations

import platform
import shlex
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import taskloss


def command_line(name: str, data: Path | None, given: Mapping[str, object]) -> str:
    """What to type to get the same again: the options that were given."""
    words = ["taskloss", name, *([str(data)] if data else [])]
    for option, value in given.items():
        values = value if isinstance(value, list) else [value]
        for one in values:
            if one is not None:
                words += [option, str(one)]
    return shlex.join(words)


def versions() -> dict[str, str]:
    """What the figures were made with."""
    found = {"taskloss": taskloss.__version__, "Python": platform.python_version()}
    for name in ("torch", "numpy", "scikit-learn", "lightgbm"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
