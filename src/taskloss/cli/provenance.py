"""Where results come from: the command line that made them, and the versions of the packages."""

from __future__ import annotations

import platform
import shlex
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import typer

import taskloss

NOT_RECORDED = frozenset({"output", "cache", "resume", "force", "jobs", "as_json", "list_all"})
"""Parameters that do not change the results."""
OF_COMPARISONS = frozenset({"splits", "methods", "seed"})
"""Parameters of a comparison that a training has no use for."""


def command_line(context: typer.Context, **changes: Any) -> str:
    """Return the command that gives the same results: every argument and option that has a value, except ``NOT_RECORDED``.

    ``changes`` are parameters that have another value in it than in the command that runs.
    """
    words = ["taskloss", context.command.name or ""]
    for parameter in context.command.params:
        if parameter.name not in NOT_RECORDED:
            words += _spell(parameter, (context.params | changes).get(parameter.name or ""))
    return shlex.join(words)


def train_command(context: typer.Context, method: str, **changes: Any) -> str:
    """Return the ``taskloss train`` command that trains a method as a comparison did; ``context`` is that of the comparison."""
    words = ["taskloss", "train"]
    for parameter in context.command.params:
        if parameter.name not in NOT_RECORDED | OF_COMPARISONS:
            words += _spell(parameter, (context.params | changes).get(parameter.name or ""))
    return shlex.join([*words, "--method", method])


def _spell(parameter: Any, value: Any) -> list[str]:
    """Return the words that give a parameter its value on the command line; none if it has no value."""
    if value is None:
        return []
    if isinstance(value, bool):
        return [parameter.opts[0]] if value else []
    if parameter.param_type_name == "argument":
        # A path that begins with a dash would be an option.
        return [f"./{value}" if str(value).startswith("-") else str(value)]
    return [word for item in (value if isinstance(value, list | tuple) else [value]) for word in (parameter.opts[0], str(item))]


def resume_hint(context: typer.Context) -> str:
    """Return the advice after an interruption: the command that continues in the same folders."""
    folders = {name: context.params.get(name) for name in ("output", "cache")}
    words = [word for name, folder in folders.items() if folder is not None for word in (f"--{name}", str(folder))]
    return f"To continue: {command_line(context)} {shlex.join(words)} --resume"


def versions() -> dict[str, str]:
    """Return the versions of taskloss, Python and the installed packages that influence the results."""
    found = {"taskloss": taskloss.__version__, "Python": platform.python_version()}
    for name in ("torch", "numpy", "scikit-learn", "lightgbm"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
