"""Compilation of kernels: cached on disk, without the interpreter lock, never with numba's own threads."""

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
from numba.core import types

from taskloss.kernels._linking import LinkedCompiler
from taskloss.kernels.compilation import announced


def kernel(function: Callable[..., Any], **extra: Any) -> Callable[..., Any]:
    """Compile ``function`` with numba and cache the machine code on disk; ``extra`` are further options of ``numba.njit``.

    ``nogil`` lets other threads (a data loader, a server) run meanwhile. ``parallel=True`` is never used: a process forked after
    it dies, and concurrent calls abort. Where no folder is writable (a read-only installation without a home folder), the
    kernel still works but each process compiles it again.
    """
    options: dict[str, Any] = {**_OPTIONS, **extra}
    try:
        dispatcher = _for_python(numba.njit(cache=True, **options)(function))
    except RuntimeError:
        _warn_no_cache()
        return _for_python(numba.njit(**options)(function))
    # numba reuses machine code while the kernel's own file is unchanged, but the code also contains the kernels that it calls.
    cache_file = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    if cache_file is not None:
        cache_file._source_stamp = _source_stamp(Path(function.__code__.co_filename))
        cache_file._load_index = functools.partial(_load_index_or_empty, cache_file._load_index)
    return dispatcher


_OPTIONS = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}


def _for_python(dispatcher: Any) -> Any:
    """Prepare a compiled function for calls from Python; kernels that call it are linked with a version of their own."""
    linked = _linked(dispatcher.py_func)
    dispatcher.get_call_template, dispatcher.get_overload = linked.get_call_template, linked.get_overload
    return announced(dispatcher)


def _without_literals(dispatcher: Any) -> Any:
    """Let calls with a constant share the code of calls with a variable; numba compiles a function anew for each constant."""
    compiler = dispatcher._compiler
    fold = compiler.fold_argument_types

    def fold_without_literals(args: Any, kws: dict[str, Any]) -> Any:
        return fold(tuple(map(types.unliteral, args)), {name: types.unliteral(value) for name, value in kws.items()})

    compiler.fold_argument_types = fold_without_literals
    return dispatcher


def _load_index_or_empty(load_index: Callable[[], Any]) -> Any:
    """Load a cache index; return an empty one if it cannot be read, as when it names classes that an update has removed."""
    try:
        return load_index()
    except (AttributeError, ImportError, EOFError, pickle.UnpicklingError):
        return {}


def inlined_kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a small kernel that LLVM inlines into its callers: for innermost loops."""
    return _linked(function, forceinline=True)


def inner_kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a kernel that only kernels call, and that neither allocates nor returns an array (numba refuses it otherwise).

    It counts no references: less code, which compiles sooner and runs faster.
    """
    return _linked(function, _nrt=False)


def allocating_kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a kernel that only kernels call, and that may allocate arrays."""
    return _linked(function)


def _linked(function: Callable[..., Any], **extra: Any) -> Any:
    """Compile a kernel for other kernels; it needs no cache, since the machine code of its callers contains it."""
    options: dict[str, Any] = {**_OPTIONS, "no_cpython_wrapper": True, "pipeline_class": LinkedCompiler, **extra}
    return _without_literals(numba.njit(**options)(function))


@functools.cache
def _source_stamp(path: Path) -> str:
    """Return a digest of a file and of every file of this package that it imports, directly or indirectly.

    A kernel's machine code is made from these files and no others. So an edit outdates the cached kernels that contain the
    edited one, wherever in the package they are, and leaves the rest valid.
    """
    package = Path(__file__).parents[1]
    sources: dict[Path, bytes] = {}
    unread = [path]
    while unread:
        file = unread.pop()
        if file not in sources and file.is_file():
            sources[file] = file.read_bytes()
            for module, names in _PACKAGE_IMPORTS.findall(sources[file].decode()):
                # ``from package.a import b``: b is a name in a.py, or the file a/b.py.
                module_path = package.joinpath(*module.split(".")[1:])
                unread.append(module_path.with_suffix(".py"))
                unread.extend(module_path / f"{name}.py" for name in re.findall(r"\w+", names))
    return hashlib.sha256(b"".join(sources[file] for file in sorted(sources))).hexdigest()


_PACKAGE_IMPORTS = re.compile(rf"^from ({__package__.split('.')[0]}[\w.]*) import (\([^)]*\)|.*)$", re.MULTILINE)


_warned = False


def _warn_no_cache() -> None:
    """Warn, once per process, that compiled kernels cannot be cached."""
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(
            "taskloss found no writable folder for its compiled kernels, so each process compiles them again (some "
            "seconds; for linear programs half a minute). Set NUMBA_CACHE_DIR to a writable folder to keep them.",
            RuntimeWarning,
            stacklevel=3,
        )
