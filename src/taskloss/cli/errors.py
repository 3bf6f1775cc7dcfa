"""Exit codes, and the one place where an exception becomes a message."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

FAILED = 1
"""The command could not finish: a file that cannot be written, a package that is not installed."""
USAGE = 2
"""An option or an argument is wrong."""
BAD_DATA = 3
"""A file cannot be used: it is missing or damaged, or its content does not fit; the message names the row and the column."""
INTERRUPTED = 130
"""Ctrl-C, as shells have it."""


class CommandError(Exception):
    """An end with a message and an exit code."""

    def __init__(self, message: str, code: int = FAILED) -> None:
        super().__init__(message)
        self.code = code


def usage_error(message: str) -> CommandError:
    """An option that does not fit the others or the data."""
    return CommandError(message, USAGE)


@contextmanager
def messages(on_interrupt: str = "") -> Iterator[None]:
    """Turn what goes wrong in a command into one message on the error stream and an exit code.

    ``on_interrupt`` tells how to go on after Ctrl-C.
    """
    from taskloss.tables import TableError  # loads pyarrow: too slow for --help

    try:
        yield
    except CommandError as error:
        _stop(str(error), error.code)
    except TableError as error:
        _stop(str(error), BAD_DATA)
    except KeyboardInterrupt:
        _stop(f"interrupted. {on_interrupt}".strip(), INTERRUPTED)
    except MemoryError:
        _stop("out of memory; take fewer rows with --max-rows", FAILED)
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        _stop(f"{name}{error.strerror or error}", FAILED)


def _stop(message: str, code: int) -> None:
    typer.echo(f"taskloss: {message}", err=True)
    raise typer.Exit(code)
