"""Files of fitted estimators: tensors in safetensors, all else as JSON in its header. No pickle: no file runs code."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from taskloss import _storage, tasks
from taskloss._storage import tensors_under
from taskloss.estimators.blend import Blend, Part
from taskloss.estimators.calibration import VectorScaling
from taskloss.estimators.ensemble import Ensemble, Member, ScoreNet
from taskloss.estimators.features import FeatureMap
from taskloss.estimators.frames import FrameEncoder
from taskloss.estimators.lightgbm_trees import Trees
from taskloss.estimators.methods import TREE_METHODS
from taskloss.estimators.problem import Problem
from taskloss.trees import Forest

FORMAT = 2
"""In format 1 there was one ensemble, of networks."""
NOT_STORED = ("module", "callback", "checkpoint")
"""Settings that a file does not hold: they are code, or a path on this machine."""


def save(estimator: Any, path: Path) -> Path:
    """Write a fitted estimator; its method ``_state()`` adds what is particular to its class."""
    parameters = {name: value for name, value in estimator.get_params(deep=False).items() if name not in NOT_STORED}
    parameters["metric"] = describe_task(parameters["metric"])
    parameters["hidden"] = list(parameters["hidden"])
    parameters["method"] = parameters["method"] if isinstance(parameters["method"], str) else list(parameters["method"])
    if not isinstance(parameters["random_state"], (int, np.integer)):
        parameters["random_state"] = None
    problem = estimator.problem_
    tensors, facts = estimator._state()
    tensors |= _under("features", estimator.features_.tensors())
    for number, part in enumerate(estimator.ensemble_.parts):
        tensors |= _under(f"part.{number}", _part_tensors(part))
    facts.update(
        format=FORMAT,
        estimator=type(estimator).__name__,
        parameters={name: _plain(value) for name, value in parameters.items()},
        own_module=estimator.module is not None,
        problem={**vars(problem), "task": describe_task(problem.task)},
        columns=estimator.n_features_in_,
        names=list(map(str, estimator.feature_names_in_)) if hasattr(estimator, "feature_names_in_") else None,
        frame=None if estimator.frame_encoder_ is None else estimator.frame_encoder_.to_dict(),
        parts=[{"method": part.problem.method, "members": len(part.ensemble.members)} for part in estimator.ensemble_.parts],
        weights=estimator.ensemble_.weights,
        left_out=estimator.left_out_,
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
    method = parameters["method"] if isinstance(parameters["method"], str) else tuple(parameters["method"])
    estimator = cls(**{**parameters, "method": method, "hidden": tuple(parameters["hidden"])})
    estimator.problem_ = Problem(**{**facts["problem"], "task": read_task(facts["problem"]["task"])})
    estimator.features_ = FeatureMap.from_tensors(estimator.scaling, tensors_under(tensors, "features"))
    estimator.frame_encoder_ = None if facts["frame"] is None else FrameEncoder.from_dict(facts["frame"])
    estimator.n_features_in_, estimator.n_iter_ = facts["columns"], facts["n_iter"]
    if facts["format"] == 1:
        tensors = _from_format_1(tensors)
        facts |= {"parts": [{"method": estimator.problem_.method, "members": facts["members"]}], "weights": [1.0], "left_out": {}}
    parts = enumerate(facts["parts"])
    read = (_read_part(estimator, tensors_under(tensors, f"part.{number}"), **part) for number, part in parts)
    estimator.ensemble_ = Blend(tuple(read), tuple(facts["weights"]))
    estimator.left_out_ = facts["left_out"]
    if facts["names"] is not None:
        estimator.feature_names_in_ = np.array(facts["names"], dtype=object)
    estimator._set_state(tensors, facts)
    return estimator


def _part_tensors(part: Part) -> dict[str, Tensor]:
    """Return the tensors of a part by name; :func:`_read_part` reads them back."""
    tensors = {"location": part.location, "scale": part.scale, "ensemble.scale": part.ensemble.scale}
    if part.logits is not None:
        tensors |= {f"logits.{name}": torch.from_numpy(value) for name, value in vars(part.logits).items()}
    for number, member in enumerate(part.ensemble.members):
        if isinstance(member.net, Trees):
            weights: dict[str, Tensor] = {}
            for index, forest in enumerate(member.net.forests):
                weights |= _under(f"forest.{index}", forest.tensors())
        else:
            weights = _under("net", member.net.state_dict())
        tensors |= _under(f"member.{number}", {**weights, "location": member.location, "scale": member.scale})
    return tensors


def _read_part(estimator: Any, tensors: dict[str, Tensor], *, method: str, members: int) -> Part:
    problem = dataclasses.replace(estimator.problem_, method=method)
    read = (_read_member(estimator, problem, tensors_under(tensors, f"member.{number}")) for number in range(members))
    ensemble = Ensemble(tuple(read), tensors["ensemble.scale"])
    scaling = {name: tensor.numpy() for name, tensor in tensors_under(tensors, "logits").items()}
    logits = VectorScaling(**scaling) if scaling else None
    return Part(problem, ensemble, tensors["location"], tensors["scale"], logits)


def _read_member(estimator: Any, problem: Problem, tensors: dict[str, Tensor]) -> Member:
    net: ScoreNet | Trees
    if problem.method in TREE_METHODS:
        one_per_label = problem.outputs is not None and not problem.exclusive
        forests = (tensors_under(tensors, f"forest.{index}") for index in range((problem.outputs or 1) if one_per_label else 1))
        columns, needed = estimator.features_.varies.size, (problem.outputs or 1) if problem.exclusive else 1
        net = Trees(tuple(Forest.from_tensors(forest, features=columns) for forest in forests), problem.outputs)
        for forest in net.forests:
            if forest.outputs != needed:
                raise ValueError(f"the trees have {forest.outputs} scores per row, but {needed} is needed; save the model again")
    else:
        net = ScoreNet(estimator._network_builder(problem)(), problem.outputs)
        net.load_state_dict(tensors_under(tensors, "net"))
        net.eval()
    return Member(net, tensors["location"], tensors["scale"], None)


def _from_format_1(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of one ensemble under the names of a part, whose scores stay as they are."""
    ensemble = {name: tensor for name, tensor in tensors.items() if name.startswith(("ensemble.", "member."))}
    return {**tensors, **_under("part.0", {**ensemble, "location": torch.zeros(()), "scale": torch.ones(())})}


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


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
