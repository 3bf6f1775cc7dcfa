"""Warnings at the line of the caller's own code."""

from __future__ import annotations

import sys
import warnings


def warn_caller(message: str) -> None:
    """Give a UserWarning at the line that called taskloss, whatever lies between."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in ("taskloss", "torch"):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, UserWarning, stacklevel=level)
