"""``taskloss compile``: compile all kernels ahead of time."""

from __future__ import annotations

import typer

from taskloss.cli.progress import progress_bar


def compile_all() -> None:
    """Compile the kernels of all metrics and of linear programs, and keep them on disk.

    Without it each kernel is compiled when it is first needed. Set NUMBA_CACHE_DIR to share the machine code among users or
    containers; it is valid for one version of taskloss and numba and for processors of one kind.
    """
    from taskloss.precompile import cache_folder, compile_kernels

    with progress_bar("compiling", 1.0) as show:
        compiled = compile_kernels(lambda done, name: show(done, f"compiling {name}", None))
    if not compiled.kernels:
        typer.echo(f"Everything is compiled already, in {cache_folder()}")
    else:
        typer.echo(f"Compiled {compiled.kernels} kernels in {compiled.seconds:.0f} s, kept in {cache_folder()}")
