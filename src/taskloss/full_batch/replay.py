"""State that a second run over the same batches needs again: random generators, buffers, counters of loaders.

Every function records one kind of state and returns a function that puts it back, which may be called more than once.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Sampler

Restore = Callable[[], object]


def record_random_state(devices: Iterable[torch.device]) -> Restore:
    """Record the global random state of Python, numpy, torch on the CPU, and torch on the given devices."""
    python, cpu = random.getstate(), torch.get_rng_state()
    legacy = np.random.get_state()  # noqa: NPY002  # Augmentations draw from numpy's global state.
    accelerators = [restore for device in devices for restore in _record_accelerator(device)]

    def restore_all() -> None:
        random.setstate(python)
        np.random.set_state(legacy)  # noqa: NPY002  # As above.
        torch.set_rng_state(cpu)
        for restore in accelerators:
            restore()

    return restore_all


def record_buffers(modules: Iterable[nn.Module]) -> Restore:
    """Record the buffers of the modules themselves, not of their children.

    The contents are put back in place, because buffers may be shared. A buffer that was replaced by another tensor or
    was registered since is put back or removed.
    """
    saved = [
        (module, [(name, buffer, _copy(buffer)) for name, buffer in module._buffers.items()])
        for module in modules
        if module._buffers
    ]

    @torch.no_grad()
    def restore() -> None:
        for module, buffers in saved:
            for name in module._buffers.keys() - {name for name, _, _ in buffers}:
                del module._buffers[name]
            for name, buffer, content in buffers:
                if module._buffers.get(name) is not buffer:
                    module._buffers[name] = buffer
                if buffer is not None and content is not None and not torch.equal(buffer, content):
                    _overwrite(buffer, content)

    return restore


def record_gradients(parameters: Iterable[nn.Parameter]) -> Restore:
    """Record ``.grad`` of the parameters; this copies the gradients that there are."""
    saved = [(parameter, parameter.grad, _copy(parameter.grad)) for parameter in parameters]

    @torch.no_grad()
    def restore() -> None:
        for parameter, gradient, content in saved:
            parameter.grad = gradient
            if gradient is not None and content is not None:
                _overwrite(gradient, content)

    return restore


def record_loader(batches: Any) -> Restore:
    """Record the random generators and whole numbers that are attributes of the loader, its samplers and its data set.

    Samplers keep a generator of their own (``generator=`` of a DataLoader) or count epochs by themselves.
    """
    saved = [
        restore
        for owner in _parts_of_loader(batches)
        for name, value in vars(owner).items()
        for restore in _record_attribute(owner, name, value)
    ]

    def restore_all() -> None:
        for restore in saved:
            restore()

    return restore_all


def _record_accelerator(device: torch.device) -> Iterator[Restore]:
    """Record the random state of a device if it has one of its own."""
    module = torch.get_device_module(device) if device.type not in ("cpu", "meta") else None
    if module is not None and hasattr(module, "get_rng_state"):
        # There is only one device of the type mps, and its functions do not take it.
        arguments = () if device.type == "mps" else (device,)
        yield partial(module.set_rng_state, module.get_rng_state(*arguments), *arguments)


def _record_attribute(owner: Any, name: str, value: Any) -> Iterator[Restore]:
    """Record an attribute if it is a random generator or a whole number."""
    if type(value) is int:
        yield partial(_set_if_changed, owner, name, value)
    elif isinstance(value, torch.Generator):
        yield partial(value.set_state, value.get_state())
    elif isinstance(value, np.random.Generator):
        yield partial(setattr, value.bit_generator, "state", value.bit_generator.state)
    elif isinstance(value, np.random.RandomState):
        yield partial(value.set_state, value.get_state())
    elif isinstance(value, random.Random):
        yield partial(value.setstate, value.getstate())


def _parts_of_loader(batches: Any) -> Iterator[Any]:
    """Yield the iterable, and what it takes its samples and their order from."""
    waiting, seen = [batches], set()
    while waiting:
        owner = waiting.pop()
        if id(owner) not in seen and hasattr(owner, "__dict__") and not isinstance(owner, (type, Tensor)):
            seen.add(id(owner))
            yield owner
            for name, value in vars(owner).items():
                items = value if isinstance(value, list) else [value]
                named = name in ("sampler", "batch_sampler", "dataset")
                waiting += [item for item in items if named or isinstance(item, (DataLoader, Dataset, Sampler))]


def _set_if_changed(owner: Any, name: str, value: int) -> None:
    # A DataLoader refuses to have some of its attributes set.
    if getattr(owner, name, None) != value:
        setattr(owner, name, value)


def _copy(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.detach().clone()


def _overwrite(tensor: Tensor, content: Tensor) -> None:
    if tensor.shape != content.shape:
        tensor.resize_(content.shape)
    tensor.copy_(content)
