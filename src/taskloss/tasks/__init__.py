"""The metrics as tasks: what an answer is, how good it is, and how to find the best one."""

from taskloss.tasks.ranking import AveragePrecision
from taskloss.tasks.registry import as_task, register, registered
from taskloss.tasks.task import Call, Inference, Task

__all__ = ["AveragePrecision", "Call", "Inference", "Task", "as_task", "register", "registered"]
