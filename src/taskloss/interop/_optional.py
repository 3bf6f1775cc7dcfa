"""Base classes of libraries that need not be installed."""

from __future__ import annotations

import importlib
from typing import Any


def optional_class(module: str, name: str, otherwise: type) -> Any:
    """Return the class ``name`` of a module, or ``otherwise`` where the module or the class is missing.

    >>> optional_class("no_such_module", "Solver", object)
    <class 'object'>
    """
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):
        return otherwise
