"""Where results come from: the command line that made them, and the versions of the packages."""

from __future__ import annotations

import platform
import shlex
from importlib.metadata import PackageNotFoundError, version

import typer

import taskloss

NOT_RECORDED = frozenset({"output", "cache", "resume", "force", "jobs", "as_json", "list_all"})
"""Parameters that do not change the results."""


def command_line(context: typer.Context) -> str:
    """Return the command that gives the same results: every argument and option that has a value, except ``NOT_RECORDED``."""
    words = ["taskloss", context.command.name or ""]
    for parameter in context.command.params:
        value = context.params.get(parameter.name or "")
        if value is None or parameter.name in NOT_RECORDED:
            continue
        if isinstance(value, bool):
            words += [parameter.opts[0]] if value else []
            continue
        for item in value if isinstance(value, list | tuple) else [value]:
            words += [str(item)] if parameter.param_type_name == "argument" else [parameter.opts[0], str(item)]
    return shlex.join(words)


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
