"""Names and handles of tasks."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import TypeVar

from taskloss.tasks.task import Task

TaskClass = TypeVar("TaskClass", bound=type[Task])

_classes: dict[str, type[Task]] = {}


def register(name: str) -> Callable[[TaskClass], TaskClass]:
    """Class decorator: make a task known by ``name``. It must be constructible without arguments.

    A registered task can be given to any loss by its name, and takes part in the contract tests.
    """

    def add(cls: TaskClass) -> TaskClass:
        if name in _classes:
            raise ValueError(f"the task name {name!r} is taken by {_classes[name].__name__}; choose another")
        _classes[name] = cls
        return cls

    return add


def registered() -> dict[str, type[Task]]:
    """All registered task classes by name, sorted.

    >>> "average_precision" in registered()
    True
    """
    return dict(sorted(_classes.items()))


def as_task(task: Task | str) -> Task:
    """A task itself, or the task of that name with its default settings.

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
    raise TypeError(f"expected a task or the name of one, got {type(task).__name__}")


# A compiled graph holds numbers, not objects, so it names a task by a number. Equal tasks share one, and a number stays valid for
# the whole process. Numbers never leave the process. The text of a task is part of the key, since 1 == 1.0, but precision at 1 is
# not precision at 100%.
_handles: dict[tuple[Task, str], int] = {}
_tasks: list[Task] = []
_lock = threading.Lock()
# The handles of tasks that were asked for before, by the identity of the task: hashing a task and writing its text takes longer
# than the rest of what Python does in a call of a loss. An entry goes when its task does, before another task can have its id.
_known: dict[int, tuple[weakref.ref[Task], int]] = {}


def handle_of(task: Task | str) -> int:
    """Return the number of this task in this process."""
    known = _known.get(id(task))
    if known is not None and known[0]() is task:
        return known[1]
    task = as_task(task)
    handle, key = _new_handle(task), id(task)
    _known[key] = weakref.ref(task, lambda _: _known.pop(key, None)), handle
    return handle


# What torch.compiler.assume_constant_result does: a compiled graph takes the number as a constant. The decorator itself would
# load the whole compiler with ``import taskloss`` and double its time.
handle_of._dynamo_marked_constant = True  # type: ignore[attr-defined]  # An attribute that functions do not have.


def _new_handle(task: Task) -> int:
    """Return the number that equal tasks have, or the next one."""
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
    """Return the task with this number."""
    return _tasks[handle]
