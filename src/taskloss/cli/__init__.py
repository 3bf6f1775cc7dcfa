"""``taskloss`` on the command line."""

from __future__ import annotations

import sys

OPTIONAL = frozenset({"jinja2", "pyarrow", "rich", "safetensors", "sklearn", "typer"})
"""Modules that the package does without, but not its command line."""


def main() -> None:
    """Entry point. Says in one line what to install when an optional dependency is missing."""
    try:
        from taskloss.cli.app import app

        app()
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in OPTIONAL:
            raise
        sys.exit(f"taskloss on the command line needs {missing}: pip install 'taskloss[cli,estimators]'")
