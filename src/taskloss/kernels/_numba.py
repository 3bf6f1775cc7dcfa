"""How every kernel is compiled: once on a machine, without the interpreter lock, never with numba's own threads."""

from __future__ import annotations

import functools
import hashlib
import pickle
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numba.extending

intrinsic: Callable[[Callable[..., Any]], Callable[..., Any]] = numba.extending.intrinsic
"""A function that kernels call, and that writes their machine code; its first argument is not for the caller."""


def kernel(function: Callable[..., Any], **extra: Any) -> Callable[..., Any]:
    """Compile ``function`` with numba and keep the machine code on disk.

    ``nogil`` lets a data loader or a server thread run meanwhile. ``parallel=True`` is never used: a process forked after
    it dies, and concurrent calls abort. Where no folder can hold the compiled code (a read-only installation without
    a home), the kernel still works and is compiled again in each process.
    """
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", **extra}
    try:
        dispatcher = numba.njit(cache=True, **options)(function)
    except RuntimeError:
        _warn_no_cache()
        return numba.njit(**options)(function)
    # numba keeps machine code as long as the kernel's own file is unchanged; but a kernel contains the kernels that it calls.
    cache_file = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    if cache_file is not None:
        cache_file._source_stamp = _source_stamp(Path(function.__code__.co_filename))
        cache_file._load_index = functools.partial(_index_or_nothing, cache_file._load_index)
    return dispatcher


def _index_or_nothing(load_index: Callable[[], Any]) -> Any:
    """What is on disk, or nothing if it cannot be read: after an update it may name classes that are no more."""
    try:
        return load_index()
    except (AttributeError, ImportError, EOFError, pickle.UnpicklingError):
        return {}


def inlined_kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """A small kernel of the innermost loop, compiled into its callers."""
    return kernel(function, forceinline=True)


def inner_kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel that only kernels call: without the entry from Python, which takes long to compile for many arguments."""
    return kernel(function, no_cpython_wrapper=True, no_cfunc_wrapper=True)


def plain_kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """An inner kernel that makes no array and returns none (numba refuses it otherwise), so that it need not count references.

    That makes less code, which is compiled sooner and runs faster.
    """
    return kernel(function, no_cpython_wrapper=True, no_cfunc_wrapper=True, _nrt=False)


def merged_kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """An inner kernel that is called in one place and becomes part of its caller before that is compiled.

    A kernel is compiled again with each that calls it, so every level of calls costs the time of all below it once more.
    """
    return numba.njit(inline="always", nogil=True, error_model="numpy")(function)


@functools.cache
def _source_stamp(path: Path) -> str:
    """Digest of a file and of every file of this package that it imports, directly or not: whatever its kernels are made from.

    So a change of one kernel outdates the kernels that contain it, wherever in the package they are, and no others.
    """
    package = Path(__file__).parents[1]
    sources: dict[Path, bytes] = {}
    waiting = [path]
    while waiting:
        file = waiting.pop()
        if file not in sources and file.is_file():
            sources[file] = file.read_bytes()
            for module, names in _PACKAGE_IMPORTS.findall(sources[file].decode()):
                folder = package.joinpath(*module.split(".")[1:])
                waiting.append(folder.with_suffix(".py"))
                waiting.extend(folder / f"{name}.py" for name in re.findall(r"\w+", names))
    return hashlib.sha256(b"".join(sources[file] for file in sorted(sources))).hexdigest()


_PACKAGE_IMPORTS = re.compile(rf"^from ({__package__.split('.')[0]}[\w.]*) import (\([^)]*\)|.*)$", re.MULTILINE)


_warned = False


def _warn_no_cache() -> None:
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(
            "taskloss found no writable folder for its compiled kernels, so each process compiles them again (some "
            "seconds; for linear programs a minute). Set NUMBA_CACHE_DIR to a writable folder to keep them.",
            RuntimeWarning,
            stacklevel=3,
        )
