"""The metrics as tasks: what an answer is, how good it is, and how to find the best one.

They import the layouts, the metrics and the kernels; nothing here knows a loss.
"""

from taskloss.tasks import catalog
from taskloss.tasks.catalog import *  # noqa: F403  # The names are listed there, once.
from taskloss.tasks.registry import as_task, register, registered
from taskloss.tasks.task import Call, Inference, Task

__all__ = ["Call", "Inference", "Task", "as_task", "register", "registered"]
__all__ += catalog.__all__
