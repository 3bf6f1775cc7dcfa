"""Exit codes, and the one place where an exception becomes a message."""

from __future__ import annotations

import errno
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

FAILED = 1
"""The command could not finish: a file cannot be written, a package is not installed, memory ran out."""
USAGE = 2
"""An option or an argument is wrong."""
BAD_DATA = 3
"""A file is missing or damaged, or its content does not fit; the message names the row and the column."""
INTERRUPTED = 130
"""Ctrl-C; the code that shells use."""
EXIT_CODES = "Exit codes: 0 done, 1 could not finish, 2 wrong option, 3 data that cannot be used, 130 interrupted."
"""Shown below the help of every command."""


class CommandError(Exception):
    """An error that ends the command with a message and an exit code."""

    def __init__(self, message: str, code: int = FAILED) -> None:
        super().__init__(message)
        self.code = code


def usage_error(message: str) -> CommandError:
    """Return the error for an option that is wrong, or does not fit the other options or the data."""
    return CommandError(message, USAGE)


@contextmanager
def exit_on_error(resume_hint: str = "") -> Iterator[None]:
    """Turn an exception of a command into one message on the error stream and an exit code.

    ``resume_hint`` is added to the message after Ctrl-C and says how to continue.
    """
    try:
        yield
    except CommandError as error:
        _exit(str(error), error.code)
    except ValueError as error:
        # Only a loaded module can have raised its error, and loading pyarrow just to compare types would take too long.
        tables = sys.modules.get("taskloss.tables")
        if tables is None or not isinstance(error, tables.TableError):
            raise
        _exit(str(error), BAD_DATA)
    except KeyboardInterrupt:
        _exit(f"interrupted. {resume_hint}".strip(), INTERRUPTED)
    except MemoryError:
        _exit("out of memory; use a file with fewer rows", FAILED)
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        _exit(f"{name}{error.strerror or error}", FAILED)


@contextmanager
def warnings_as_messages() -> Iterator[None]:
    """Print the warnings of a block as messages of the command, each once, after the block."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        # It advises arguments of the loss, which the commands do not have.
        warnings.filterwarnings("ignore", "the gradient of this loss is zero", UserWarning)
        yield
    for message in dict.fromkeys(str(warning.message) for warning in caught):
        typer.echo(f"taskloss: {message}", err=True)


def check_readable(*paths: Path | None) -> None:
    """Raise if a file does not exist or cannot be read; commands ask this first, before they load anything slow."""
    for path in paths:
        if path is None:
            continue
        try:
            if path.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            path.stat()
            if not os.access(path, os.R_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        except (OSError, ValueError) as error:  # A path with a zero byte is a ValueError.
            raise CommandError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}", BAD_DATA) from error


def check_new(path: Path, *, force: bool) -> None:
    """Raise if a file that the command would write exists already."""
    if not force and os.path.lexists(path):
        raise CommandError(f"{path} exists already; give --force to overwrite it, or another --output")


def _exit(message: str, code: int) -> None:
    typer.echo(f"taskloss: {message}", err=True)
    raise typer.Exit(code)
