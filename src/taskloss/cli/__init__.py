"""The ``taskloss`` command: one module per subcommand, and what they share.

It may import every other package of taskloss; none of them imports it.
"""

from __future__ import annotations

import sys

EXTRAS = {
    "cli,estimators": frozenset({"jinja2", "pyarrow", "rich", "safetensors", "sklearn", "typer"}),
    "experiments": frozenset({"cv2", "matplotlib", "PIL"}),
}
"""Modules that only the command line needs, by the extra that installs them; the library works without them."""


def main() -> None:
    """Run the command line; if an optional dependency is missing, exit with one line that says what to install."""
    try:
        from taskloss.cli.app import app

        app()
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        extra = next((extra for extra, modules in EXTRAS.items() if missing in modules), None)
        if extra is None:
            raise
        sys.exit(f"taskloss on the command line needs {missing}: pip install 'taskloss[{extra}]'")
