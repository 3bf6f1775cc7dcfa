"""Settings of all the tests."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# The first call of a kernel compiles it, so times say nothing. On CI the examples are the same in every run.
settings.register_profile("taskloss", deadline=None, derandomize="CI" in os.environ, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("taskloss")
