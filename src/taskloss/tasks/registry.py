"""Names and handles of tasks."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import TypeVar

from taskloss.tasks.task import Task

TaskClass = TypeVar("TaskClass", bound=type[Task])

_classes: dict[str, type[Task]] = {}


def register(name: str, *, label: str | None = None) -> Callable[[TaskClass], TaskClass]:
    """Return a class decorator that makes a task known by ``name``; the task must be constructible without arguments.

    A registered task can be given to any loss by its name, appears on the command line, and takes part in the contract tests.
    ``label`` is the metric's name for readers, by default the name with spaces.
    """

    def add(cls: TaskClass) -> TaskClass:
        if name in _classes:
            raise ValueError(f"the task name {name!r} is taken by {_classes[name].__name__}; choose another")
        cls.label = name.replace("_", " ") if label is None else label
        _classes[name] = cls
        return cls

    return add


def registered() -> dict[str, type[Task]]:
    """Return all registered task classes by name, sorted.

    >>> "average_precision" in registered()
    True
    >>> registered()["roc_auc"].label
    'ROC AUC'
    """
    return dict(sorted(_classes.items()))


def as_task(task: Task | str) -> Task:
    """Return a task itself, or the task of that name with its default settings.

    >>> as_task("average_precision")
    AveragePrecision(on_one_class='skip', at=None)
    """
    if isinstance(task, Task):
        return task
    if isinstance(task, str):
        if task not in _classes:
            raise ValueError(f"no task is named {task!r}; the names are {', '.join(registered())}")
        return _classes[task]()
    if isinstance(task, type) and issubclass(task, Task):
        raise TypeError(f"expected a task, got the class {task.__name__}; write {task.__name__}()")
    cure = "; if it is a solver, write Structured(solver, loss='regret')" if callable(task) else ""
    raise TypeError(f"expected a task or the name of one, got {type(task).__name__}{cure}")


# A compiled graph holds numbers, not objects, so it refers to a task by a number, its handle. Equal tasks share a handle, and a
# handle is valid until the process ends; it never leaves the process. The text of a task is part of the key, since 1 == 1.0, but
# precision at 1 is not precision at 100%.
_handles: dict[tuple[Task, str], int] = {}
_tasks: list[Task] = []
_lock = threading.Lock()
# Handles by the identity of the task: hashing a task and writing its text would take longer than all the checks of a call. An
# entry is removed together with its task, before another task can get the same id.
_handles_by_id: dict[int, tuple[weakref.ref[Task], int]] = {}


def handle_of(task: Task | str) -> int:
    """Return the handle of this task in this process."""
    entry = _handles_by_id.get(id(task))
    if entry is not None and entry[0]() is task:
        return entry[1]
    task = as_task(task)
    handle, key = _find_or_add(task), id(task)
    _handles_by_id[key] = weakref.ref(task, lambda _: _handles_by_id.pop(key, None)), handle
    return handle


# What torch.compiler.assume_constant_result does: a compiled graph takes the handle as a constant. The decorator itself would
# load the whole compiler with ``import taskloss`` and double its time.
handle_of._dynamo_marked_constant = True  # type: ignore[attr-defined]  # An attribute that functions do not have.


def _find_or_add(task: Task) -> int:
    """Return the handle of an equal task, or a new one."""
    try:
        key = (task, repr(task))
        hash(key)
    except TypeError as error:
        raise TypeError(
            f"{type(task).__name__} cannot be hashed ({error}); tasks are frozen: hold tuples, not arrays or lists"
        ) from error
    with _lock:
        if key not in _handles:
            _tasks.append(task)
            _handles[key] = len(_tasks) - 1
        return _handles[key]


def task_of(handle: int) -> Task:
    """Return the task with this handle."""
    return _tasks[handle]
