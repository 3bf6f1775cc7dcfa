"""Settings of all the tests."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

# The first call of a kernel compiles it, so times say nothing. On CI the examples are the same in every run.
settings.register_profile("taskloss", deadline=None, derandomize="CI" in os.environ, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("taskloss")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Linear programs first: their kernels take a minute to compile, which two processes in the middle would do at once."""
    items.sort(key=lambda item: "tests/lp/" not in item.nodeid)
