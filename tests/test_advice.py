"""Warnings: calls that will not do what the caller wants say so once, with the cure; sensible calls say nothing."""

from __future__ import annotations

import copy
import pickle
import warnings

import pytest
import torch

import taskloss as tl
from taskloss import _advice

GENERATOR = torch.Generator().manual_seed(0)
TARGET = torch.arange(100) % 5 == 0
SCORES = torch.randn(100, generator=GENERATOR)


def messages(criterion, scores, target, calls=1, **options):
    """The warnings of some training calls with the same data."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(calls):
            value = criterion(scores.detach().clone().requires_grad_(), target, **options)
            value.sum().backward()
    assert all(warning.category is UserWarning for warning in caught)
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize("task", ["f_score", "jaccard", "average_precision", "multi_class"])
def test_sensible_calls_say_nothing(task):
    scores = torch.randn(100, 4, generator=GENERATOR) if task == "multi_class" else SCORES
    target = torch.arange(100) % 4 if task == "multi_class" else TARGET
    assert not messages(tl.DirectLoss(task), scores, target, calls=40)


# --- no gradient ------------------------------------------------------------------------------------------------------


def test_a_zero_gradient_short_of_the_best_value_is_said_once():
    criterion = tl.DirectLoss("jaccard", update="positive")
    said = messages(criterion, SCORES.abs() - 9, TARGET, calls=100)
    assert [text for text in said if "gradient" in text] == [
        "the gradient of this loss is zero, although its value, 1, is not at its best: the positive update has no gradient while "
        "no worse answer is within reach of epsilon=1 (the largest score is 9). Use update='central', which also moves toward "
        "better answers, or a larger epsilon"
    ]


def test_a_gradient_that_vanishes_during_training_is_noticed():
    criterion = tl.DirectLoss("f_score", update="positive")
    assert not messages(criterion, SCORES, TARGET, calls=50)
    assert any("update='central'" in text for text in messages(criterion, SCORES - 9, TARGET, calls=3 * _advice.EVERY))


def test_one_batch_without_a_gradient_among_others_is_no_reason():
    criterion = tl.DirectLoss("f_score", update="positive")
    for call in range(_advice.FIRST):
        assert not messages(criterion, SCORES - 9 * (call % 3 == 2), TARGET)


def test_scores_far_beyond_epsilon():
    for update, advice in (("positive", "a larger epsilon"), ("negative", "larger epsilon, or scores of a smaller scale")):
        said = messages(tl.DirectLoss("average_precision", update=update), SCORES * 1e6, TARGET)
        assert len(said) == 1
        assert advice in said[0]


def test_no_gradient_at_the_best_value_is_right():
    best = torch.where(TARGET, 50.0, -50.0)
    for task in ("average_precision", "f_score", "roc_auc", tl.PrecisionAtK(50)):
        assert not messages(tl.DirectLoss(task), best, TARGET, calls=20)
    # The best value of a list with missing items and of a cost is not zero.
    assert not messages(tl.DirectLoss("average_precision"), best, TARGET, calls=20, num_relevant=200)
    cost = torch.rand(4, 3, 3, generator=GENERATOR) + 1
    task = tl.Structured(tl.solvers.Assignment(), loss="cost")
    assert not messages(tl.DirectLoss(task, epsilon=0.01), -50 * cost, cost, calls=20)


# --- signs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [lambda: tl.DirectLoss("f_score"), lambda: tl.StructuredHingeLoss("jaccard"), tl.lp.FScoreLoss])
def test_probabilities_instead_of_logits(make):
    said = messages(make(), SCORES.sigmoid(), TARGET, calls=20)
    assert len(said) == 1
    assert "as if they were probabilities" in said[0]
    assert "Leave out the sigmoid" in said[0]


def test_a_fresh_layer_whose_first_scores_look_like_probabilities():
    criterion = tl.DirectLoss("f_score")
    assert not messages(criterion, SCORES.sigmoid(), TARGET, calls=_advice.FIRST - 1)
    assert not messages(criterion, SCORES, TARGET, calls=20)


def test_scores_of_one_sign_from_the_start():
    for sign, word in (
        (1, "above 0, so every sample is predicted positive"),
        (-1, "below 0, so every sample is predicted negative"),
    ):
        scores = sign * (SCORES.abs() + 0.1)
        criterion = tl.DirectLoss("f_score")
        assert not messages(criterion, scores, TARGET, calls=_advice.FIRST - 1)
        assert any(word in text for text in messages(criterion, scores, TARGET))


def test_one_sign_is_no_reason_where_it_is_right_or_passes():
    assert not messages(tl.DirectLoss("f_score"), -SCORES.abs() - 0.1, torch.zeros(100), calls=40)
    assert not messages(tl.DirectLoss("average_precision"), SCORES.sigmoid(), TARGET, calls=40)
    criterion = tl.DirectLoss("f_score")
    messages(criterion, SCORES.abs() + 0.1, TARGET, calls=3)
    assert not messages(criterion, SCORES, TARGET)
    assert not messages(criterion, SCORES.abs() + 0.1, TARGET, calls=40)


# --- undefined rankings -----------------------------------------------------------------------------------------------


def test_a_call_without_any_ranking_is_said_once():
    for criterion in (tl.DirectLoss("average_precision"), tl.StructuredHingeLoss("ndcg"), tl.lp.AUCLoss()):
        said = messages(criterion, SCORES, torch.zeros(100), calls=40)
        assert len(said) == 1
        assert "every ranking of this call is undefined (one class only)" in said[0]
        assert "larger batches" in said[0]
    with torch.no_grad(), pytest.warns(UserWarning, match="every ranking"):
        tl.DirectLoss("average_precision")(SCORES, torch.zeros(100))
    assert not messages(tl.DirectLoss("average_precision"), torch.empty(0), torch.empty(0))


def test_a_call_in_which_everything_is_ignored():
    said = messages(tl.DirectLoss("f_score", ignore_index=-1), SCORES, torch.full((100,), -1))
    assert said == ["all targets of this call are -1, the ignore_index: the loss is zero"]


# --- shapes -----------------------------------------------------------------------------------------------------------


def test_two_columns_of_logits_with_one_vector_of_labels():
    logits = torch.randn(100, 2, generator=GENERATOR)
    criterion = tl.DirectLoss("f_score")
    said = messages(criterion, logits, TARGET.long(), calls=20)
    assert len(said) == 1
    assert "criterion(scores[:, 1] - scores[:, 0], target)" in said[0]
    assert not messages(tl.DirectLoss("f_score"), logits[:, 1] - logits[:, 0], TARGET)
    assert not messages(tl.DirectLoss("f_score"), logits, TARGET.long(), dim=0)  # said what is meant
    assert not messages(tl.DirectLoss("multi_class"), logits, TARGET.long())
    assert not messages(tl.DirectLoss("f_score"), torch.randn(100, 3, generator=GENERATOR), torch.arange(100) % 3)


def test_one_row():
    for task, word in (
        ("average_precision", "every ranking of this call is undefined"),
        ("f_score", "100 labelings of one sample"),
    ):
        said = messages(tl.DirectLoss(task), SCORES[None], TARGET[None], calls=20)
        assert len(said) == 1
        assert word in said[0]
        assert "criterion(scores.squeeze(0), target.squeeze(0))" in said[0]
        assert not messages(tl.DirectLoss(task), SCORES[None], TARGET[None], dim=1)


def test_queries_by_documents_without_dim():
    scores, target = torch.randn(50, 20, generator=GENERATOR), torch.zeros(50, 20)
    target[:, 0] = 1
    target[7, 3] = 1  # All the relevant documents are in two columns.
    for task in ("average_precision", "graded_ndcg"):
        shapes = [text for text in messages(tl.DirectLoss(task), scores, target, calls=20) if "columns" in text]
        assert len(shapes) == 1
        assert "19 of the 20 columns" in shapes[0]
        assert "criterion(scores, target, dim=1)" in shapes[0]
        assert not messages(tl.DirectLoss(task), scores, target, dim=1)
    target[7, 3] = 0
    said = messages(tl.DirectLoss("average_precision"), scores, target)
    assert len(said) == 1
    assert "every ranking" in said[0]
    assert "criterion(scores, target, dim=1)" in said[0]


def test_a_small_multi_label_batch_is_legal():
    scores, target = torch.randn(8, 40, generator=GENERATOR), torch.zeros(8, 40)
    target[torch.arange(8), torch.arange(8) % 4] = 1
    target[4:, 4] = 1
    assert not messages(tl.DirectLoss("average_precision"), scores, target, calls=20)


# --- where and how often ----------------------------------------------------------------------------------------------


def test_functions_warn_too_and_the_caller_is_named(monkeypatch):
    monkeypatch.setattr(_advice, "_shared", {})
    with pytest.warns(UserWarning, match="update='central'") as caught:
        tl.functional.direct_loss((SCORES - 9).requires_grad_(), TARGET, "f_score", update="positive")
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tl.functional.direct_loss((SCORES - 9).requires_grad_(), TARGET, "f_score", update="positive")
    criterion = tl.DirectLoss("f_score", update="positive")
    with pytest.warns(UserWarning, match="update='central'") as caught:
        criterion((SCORES - 9).requires_grad_(), TARGET)
    assert caught[0].filename == __file__


def test_each_module_speaks_for_itself_and_can_be_copied():
    criterion = tl.DirectLoss("f_score", update="positive")
    assert messages(criterion, SCORES - 9, TARGET)
    for other in (copy.deepcopy(criterion), pickle.loads(pickle.dumps(criterion))):
        assert not messages(other, SCORES - 9, TARGET)
    assert messages(tl.DirectLoss("f_score", update="positive"), SCORES - 9, TARGET)


def test_only_the_first_calls_and_few_later_ones_are_examined(monkeypatch):
    examined = []
    monkeypatch.setattr(_advice.Advice, "_examine", lambda advice, call: examined.append(advice.calls))
    messages(tl.DirectLoss("f_score"), SCORES, TARGET, calls=100)
    assert examined == [*range(1, _advice.FIRST + 1), 32, 64, 96]


def test_transforms_are_left_alone():
    criterion = tl.DirectLoss("f_score", update="positive")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.func.grad(lambda x: criterion(x, TARGET))(SCORES - 9)
