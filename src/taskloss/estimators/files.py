"""Files of fitted estimators: tensors in safetensors, all else as JSON in its header. No pickle: no file runs code."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from taskloss import _storage, tasks
from taskloss._storage import tensors_under
from taskloss.estimators.ensemble import Ensemble, Member, ScoreNet
from taskloss.estimators.features import FeatureMap
from taskloss.estimators.frames import FrameEncoder
from taskloss.estimators.problem import Problem

FORMAT = 1
NOT_STORED = ("module", "callback", "checkpoint")
"""Settings that a file does not hold: they are code, or a path on this machine."""


def save(estimator: Any, path: Path) -> Path:
    """Write a fitted estimator; its method ``_state()`` adds what is particular to its class."""
    parameters = {name: value for name, value in estimator.get_params(deep=False).items() if name not in NOT_STORED}
    parameters["metric"] = describe_task(parameters["metric"])
    parameters["hidden"] = list(parameters["hidden"])
    if not isinstance(parameters["random_state"], (int, np.integer)):
        parameters["random_state"] = None
    problem = estimator.problem_
    tensors, facts = estimator._state()
    tensors["ensemble.scale"] = estimator.ensemble_.scale
    tensors.update({f"features.{name}": tensor for name, tensor in estimator.features_.tensors().items()})
    for number, member in enumerate(estimator.ensemble_.members):
        weights = {f"net.{name}": tensor for name, tensor in member.net.state_dict().items()}
        for name, tensor in {**weights, "location": member.location, "scale": member.scale}.items():
            tensors[f"member.{number}.{name}"] = tensor
    facts.update(
        format=FORMAT,
        estimator=type(estimator).__name__,
        parameters={name: _plain(value) for name, value in parameters.items()},
        own_module=estimator.module is not None,
        problem={**vars(problem), "task": describe_task(problem.task)},
        columns=estimator.n_features_in_,
        names=list(map(str, estimator.feature_names_in_)) if hasattr(estimator, "feature_names_in_") else None,
        frame=None if estimator.frame_encoder_ is None else estimator.frame_encoder_.to_dict(),
        members=len(estimator.ensemble_.members),
        n_iter=estimator.n_iter_,
    )
    return _storage.write_tensors(path, tensors, facts)


def load(cls: Any, path: Path, module: Callable[[int, int], nn.Module] | None) -> Any:
    """Read an estimator of class ``cls`` that :func:`save` wrote."""
    tensors, facts = _storage.read_tensors(path)
    if facts.get("estimator") != cls.__name__:
        raise ValueError(f"{path} holds {facts.get('estimator', 'no estimator')}, not {cls.__name__}; load it with its own class")
    if facts["format"] > FORMAT:
        raise ValueError(f"{path} was written by a newer taskloss (format {facts['format']}, known is {FORMAT}); update taskloss")
    if facts["own_module"] and module is None:
        raise ValueError(
            f"{path} holds the weights of your own network; pass the function that builds it: load(path, module=...)"
        )
    parameters = {**facts["parameters"], "metric": read_task(facts["parameters"]["metric"]), "module": module}
    estimator = cls(**{**parameters, "hidden": tuple(parameters["hidden"])})
    estimator.problem_ = Problem(**{**facts["problem"], "task": read_task(facts["problem"]["task"])})
    estimator.features_ = FeatureMap.from_tensors(estimator.scaling, tensors_under(tensors, "features"))
    estimator.frame_encoder_ = None if facts["frame"] is None else FrameEncoder.from_dict(facts["frame"])
    members = tuple(_read_member(estimator, tensors_under(tensors, f"member.{n}")) for n in range(facts["members"]))
    estimator.ensemble_ = Ensemble(members, tensors["ensemble.scale"])
    estimator.n_features_in_, estimator.n_iter_ = facts["columns"], facts["n_iter"]
    if facts["names"] is not None:
        estimator.feature_names_in_ = np.array(facts["names"], dtype=object)
    estimator._set_state(tensors, facts)
    return estimator


def _read_member(estimator: Any, tensors: dict[str, Tensor]) -> Member:
    net = ScoreNet(estimator._network_builder(estimator.problem_)(), estimator.problem_.outputs)
    net.load_state_dict(tensors_under(tensors, "net"))
    return Member(net.eval(), tensors["location"], tensors["scale"], None)


def describe_task(task: tasks.Task | str) -> Any:
    """Return a task as JSON: the registered name if one was given, else its class and settings."""
    if isinstance(task, str):
        return task
    # Every task is a dataclass.
    settings = {field.name: getattr(task, field.name) for field in dataclasses.fields(task) if field.init}  # type: ignore[arg-type]
    settings = {name: value.values.tolist() if hasattr(value, "values") else value for name, value in settings.items()}
    if getattr(tasks, type(task).__name__, None) is not type(task) or any(map(callable, settings.values())):
        raise ValueError(
            f"{type(task).__name__} holds your own code, which a file cannot store; save works with the tasks of taskloss whose "
            "settings are numbers and names"
        )
    return {"task": type(task).__name__, "settings": settings}


def read_task(description: Any) -> Any:
    """Return the task that :func:`describe_task` described."""
    if isinstance(description, str):
        return description
    return getattr(tasks, description["task"])(**description["settings"])


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
