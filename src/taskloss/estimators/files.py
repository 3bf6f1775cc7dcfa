"""Fitted estimators as files: tensors in safetensors, all else as JSON in its header. No pickle: nothing in a file runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from taskloss import _storage, tasks
from taskloss.estimators.ensemble import Ensemble, Member, ScoreNet
from taskloss.estimators.features import FeatureMap
from taskloss.estimators.problem import Problem
from taskloss.training import build_mlp, seeded

FORMAT = 1
NO_DATA = ("module", "callback", "checkpoint")
"""Settings that a file does not hold."""


def build_module(module: Any, width: int, outputs: int | None, seed: int) -> nn.Module:
    """A user's own network, its initial weights drawn from the seed."""
    with seeded(seed, torch.device("cpu")):
        net = module(width, outputs or 1)
    if not isinstance(net, nn.Module):
        raise TypeError(f"module(n_features, n_outputs) must return a torch.nn.Module, got {type(net).__name__}")
    return net


def save(estimator: Any, path: Path) -> Path:
    """Write a fitted estimator; ``estimator._state()`` adds the tensors and facts of its class."""
    parameters = {name: value for name, value in estimator.get_params(deep=False).items() if name not in NO_DATA}
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
        members=len(estimator.ensemble_.members),
        n_iter=estimator.n_iter_,
    )
    return _storage.write_tensors(path, tensors, facts)


def load(cls: Any, path: Path, module: Callable[[int, int], nn.Module] | None) -> Any:
    """Read what :func:`save` wrote."""
    tensors, facts = _storage.read_tensors(path)
    if facts.get("estimator") != cls.__name__:
        raise ValueError(f"{path} holds {facts.get('estimator', 'no estimator')}, not {cls.__name__}; load it with its own class")
    if facts["format"] > FORMAT:
        raise ValueError(f"{path} was written by a newer taskloss (format {facts['format']}, known is {FORMAT}); update taskloss")
    if facts["own_module"] and module is None:
        raise ValueError(
            f"{path} holds weights of a network of your own; pass the function that builds it: load(path, module=...)"
        )
    parameters = {**facts["parameters"], "metric": read_task(facts["parameters"]["metric"]), "module": module}
    estimator = cls(**{**parameters, "hidden": tuple(parameters["hidden"])})
    estimator.problem_ = Problem(**{**facts["problem"], "task": read_task(facts["problem"]["task"])})
    estimator.features_ = FeatureMap.from_tensors(estimator.scaling, below(tensors, "features"))
    members = tuple(_read_member(estimator, below(tensors, f"member.{n}")) for n in range(facts["members"]))
    estimator.ensemble_ = Ensemble(members, tensors["ensemble.scale"])
    estimator.n_features_in_, estimator.n_iter_ = facts["columns"], facts["n_iter"]
    if facts["names"] is not None:
        estimator.feature_names_in_ = np.array(facts["names"], dtype=object)
    estimator._set_state(tensors, facts)
    return estimator


def _read_member(estimator: Any, tensors: dict[str, Tensor]) -> Member:
    outputs, width = estimator.problem_.outputs, estimator.features_.width
    if estimator.module is None:
        net: nn.Module = build_mlp(width, hidden=estimator.hidden, outputs=outputs, dropout=estimator.dropout)
    else:
        net = build_module(estimator.module, width, outputs, 0)
    scoring = ScoreNet(net, outputs)
    scoring.load_state_dict(below(tensors, "net"))
    return Member(scoring.eval(), tensors["location"], tensors["scale"], None)


def below(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors of a part, without its name."""
    return {name.removeprefix(f"{prefix}."): tensor for name, tensor in tensors.items() if name.startswith(f"{prefix}.")}


def describe_task(task: tasks.Task | str) -> Any:
    """A task as JSON: its registered name as it was given, or its class and settings."""
    if isinstance(task, str):
        return task
    # Every task is a dataclass.
    settings = {field.name: getattr(task, field.name) for field in dataclasses.fields(task) if field.init}  # type: ignore[arg-type]
    settings = {name: value.values.tolist() if hasattr(value, "values") else value for name, value in settings.items()}
    if getattr(tasks, type(task).__name__, None) is not type(task) or any(map(callable, settings.values())):
        raise ValueError(
            f"{type(task).__name__} holds code of yours, which a file does not; save works with the tasks of taskloss that are "
            "described by numbers and names"
        )
    return {"task": type(task).__name__, "settings": settings}


def read_task(description: Any) -> Any:
    """The opposite of :func:`describe_task`."""
    if isinstance(description, str):
        return description
    return getattr(tasks, description["task"])(**description["settings"])


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
