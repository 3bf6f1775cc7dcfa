"""Every loss inside ``torch.compile``: one graph, the same numbers."""

from __future__ import annotations

import torch

import taskloss as tl
from tests.contract.cases import every_loss, every_task, example, value_and_gradient


@every_task
@every_loss
def test_compile_without_graph_breaks(task, make_loss):
    torch._dynamo.reset()
    scores, target = example(task)
    loss = make_loss(task)
    compiled = torch.compile(lambda x, y: loss(x * 2, y) + 1, fullgraph=True, backend="aot_eager")
    value, gradient = value_and_gradient(lambda x, y: loss(x * 2, y) + 1, scores, target)
    compiled_value, compiled_gradient = value_and_gradient(compiled, scores, target)
    assert torch.equal(compiled_value, value)
    assert torch.equal(compiled_gradient, gradient)


@every_task
@every_loss
def test_compile_with_dynamic_shapes(task, make_loss):
    torch._dynamo.reset()
    loss = make_loss(task)
    compiled = torch.compile(loss, fullgraph=True, dynamic=True, backend="aot_eager")
    for n in (30, 41, 17):
        scores, target = example(task, (n,))
        assert torch.equal(value_and_gradient(compiled, scores, target)[1], value_and_gradient(loss, scores, target)[1])


@every_task
def test_functional_forms_compile_too(task):
    torch._dynamo.reset()
    scores, target = example(task)
    compiled = torch.compile(
        lambda x, y: tl.functional.direct_loss(x, y, task) + tl.functional.structured_hinge_loss(x, y, task),
        fullgraph=True,
        backend="aot_eager",
    )
    expected = tl.DirectLoss(task)(scores, target) + tl.StructuredHingeLoss(task)(scores, target)
    assert torch.equal(compiled(scores, target), expected)
    assert torch.equal(value_and_gradient(compiled, scores, target)[0], expected)
