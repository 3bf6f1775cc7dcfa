"""Nothing here is collected, for tests or doctests, except in the process that ``tests.test_another_device`` starts."""

from __future__ import annotations

import os

collect_ignore_glob = [] if "TASKLOSS_ANOTHER_DEVICE" in os.environ else ["*.py"]
