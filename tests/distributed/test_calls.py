"""What a loss over processes gives and raises, on every rank."""

from __future__ import annotations

import pytest
import torch

import taskloss as tl
from tests.distributed.calls_worker import SCORES
from tests.distributed.cases import BINARY, MULTI_LABEL, NOISE, QUERIES, SHARDS, rows
from tests.distributed.running import error_of, run

WORLD = 3
ap = tl.functional.direct_loss


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    for task in ("average_precision", "f_score"):
        ap(SCORES.clone().requires_grad_(), BINARY, task).backward()  # The kernels are on disk then.
    return run("calls_worker.py", WORLD, tmp_path_factory.mktemp("calls"))


@pytest.fixture(scope="module")
def results(reports):
    return [report["results"] for report in reports]


def gradient(dtype: torch.dtype = torch.float64, factor: float = 1.0) -> torch.Tensor:
    scores = SCORES.to(dtype).clone().requires_grad_()
    (ap(scores, BINARY, "average_precision") * factor).backward()
    return scores.grad


@pytest.mark.parametrize(("name", "factor"), [("mean", WORLD), ("sum", 1)])
def test_each_rank_has_its_rows_of_the_gradient(results, name, factor):
    """Times the number of ranks where the training loop will divide by it; bit for bit."""
    for rank in range(WORLD):
        assert results[rank][name] == (rows(gradient(), rank, WORLD) * factor).tolist()


def test_half_precision_is_scaled_before_it_is_rounded(results):
    expected = gradient(torch.float16, 1024.0 * WORLD)
    assert results[2]["half"] == rows(expected, 2, WORLD).tolist()


def test_values_are_those_of_the_union_on_every_rank(results):
    labels, matrix = NOISE[:, :3], MULTI_LABEL
    for rank in results:
        assert rank["per_query"] == ap(SCORES, BINARY, "average_precision", groups=QUERIES, reduction="none").tolist()
        assert rank["per_label"] == ap(labels, matrix, "f_score", reduction="none").tolist()
        assert rank["per_row"] == ap(labels, matrix, "average_precision", dim=1, reduction="none").tolist()  # Ordered by rank.
        assert rank["compiled"] == ap(SCORES, BINARY, "average_precision").item()


def test_a_group_of_some_ranks(results):
    members = torch.cat([rows(SCORES, 0, WORLD), rows(SCORES, 2, WORLD)]), torch.cat([rows(BINARY, r, WORLD) for r in (0, 2)])
    assert results[0]["pair"] == results[2]["pair"] == ap(*members, "average_precision").item()


def test_one_rank_alone_is_one_process(results):
    for rank in range(WORLD):
        scores = rows(SCORES, rank, WORLD).clone().requires_grad_()
        loss = ap(scores, rows(BINARY, rank, WORLD), "average_precision")
        loss.backward()
        assert results[rank]["of_one_rank"] == scores.grad.tolist()
        assert results[rank]["turned_off"] == loss.item()


def test_fsdp_takes_the_mean_by_default_and_the_sum_when_told(results):
    assert max(difference for rank in results for difference in rank["sharded"]) < 1e-12


def test_data_on_another_device_travel_by_the_cpu(results):
    assert [rank["elsewhere"] for rank in results] == [[ap(SCORES, BINARY, "average_precision").item(), "elsewhere"]] * WORLD


def test_functions_may_capture_what_differs_between_ranks(results):
    expected = tl.lp.fscore_loss(SCORES, BINARY, phi=torch.tanh).item()
    assert [rank["captured"] for rank in results] == [expected] * WORLD


def test_no_rank_with_samples_is_one_process_without(results):
    assert [rank["no_samples"] for rank in results] == [0.0] * WORLD


def test_gather_returns_all_rows_on_every_rank(results):
    for rank in results:
        assert rank["gathered"] == [SCORES.tolist(), BINARY.tolist(), QUERIES.tolist()]


ERRORS = {
    "nan": "on rank 2: scores[3] is nan",
    "infinite": "on rank 2: scores[0] is inf",
    "type": "on rank 2: scores must be a torch.Tensor, got list",
    "dtype": "differ in scores (torch.float64 rows of shape () on ranks 0, 1, torch.float32 rows of shape () on rank 2)",
    "target_dtype": "differ in target (torch.int64 rows of shape () on ranks 0, 1, torch.bool",
    "trailing_shape": "differ in scores (torch.float64 rows of shape (6,) on ranks 0, 1, torch.float64 rows of shape (7,)",
    "axes": "torch.float64 rows of shape (1,) on rank 2",
    "length": "on rank 2: scores has shape (21,) and target has shape (22,)",
    "swapped": "on rank 2: scores must be floating point, got torch.int64; are scores and target swapped?",
    "task": "differ in task (AveragePrecision(on_one_class='skip', at=None) on ranks 0, 1, NDCG",
    "task_setting": "PrecisionAtK(k=6, on_one_class='skip') on rank 2",
    "costs": "differ in task (MultiClass(cost=<6 x 6 costs>)",
    "epsilon": "differ in epsilon (1.0 on ranks 0, 1, 2.0 on rank 2)",
    "update": "differ in rule ('positive' on ranks 0, 1, 'negative' on rank 2)",
    "reduction": "differ in reduction ('mean' on ranks 0, 1, 'sum' on rank 2)",
    "unknown_reduction": "on rank 2: reduction='median' is not known",
    "gradient_reduction": "differ in gradient_reduction",
    "groups_missing": "differ in groups (torch.int64 rows of shape () on ranks 0, 1, not given on rank 2)",
    "group_sizes": "on rank 2: groups has shape (2,), but there are 22 samples",
    "query_weights": "weight of query 103 is 3.0 on rank 0 and 4.0 on rank 2",
    "query_weights_length": "on rank 0: weight has shape (2,); expected 5 in all, one per query of this rank",
    "shared_weight": "differ in weight (torch.float32 [1.0, 2.0], shape (2,) on ranks 0, 1, torch.float32 [1.0, 3.0]",
    "labels": "target[19] is 2; expected only 0 and 1",
    "one_sample": "scores has shape (6,) and target has shape (); over several processes the first axis",
    "one_instance": "batch_dims=0 says that there is none",
    "gather_shape": "on rank 2: the tensors have shapes (22,), (21,)",
    "gather_and_loss": "differ in function ('loss' on ranks 0, 1, 'gather' on rank 2)",
    "phi": "expected phi to map scores to [-1, 1]",
    "function": "differ in phi (<function scaled_tanh",
    "solver": "differ in solver ('exact' on ranks 0, 1, 'lp' on rank 2)",
}


@pytest.mark.parametrize("name", ERRORS)
def test_what_is_wrong_on_one_rank_raises_the_same_error_on_all(reports, name):
    errors = [report["errors"][name] for report in reports]
    assert errors[0] is not None
    assert errors[0] == errors[1] == errors[2]
    assert errors[0][0] == ("TypeError" if name in ("type", "swapped") else "ValueError")
    assert ERRORS[name] in errors[0][1]


def test_every_wrong_call_is_tested(reports):
    assert reports[0]["errors"].keys() == ERRORS.keys()


def test_errors_about_the_union_say_which_rows_are_whose(reports):
    assert "rows of rank 0: 0 to 17, rank 2: 18 to 39" in reports[0]["errors"]["labels"][2]
    assert SHARDS[WORLD] == [18, 0, 22]


def test_processes_outside_a_group_are_told(reports):
    assert "not a member of process_group" in reports[1]["errors"]["group"][1]


def test_without_a_group_the_error_says_what_to_do():
    for options in ({"sync": True}, {"process_group": object()}):
        kind, message = error_of(lambda options=options: ap(SCORES, BINARY, "average_precision", **options))
        assert kind == "ValueError"
        assert "init_process_group" in message
    with pytest.raises(ValueError, match="init_process_group"):
        tl.distributed.gather(SCORES)


def test_settings_are_checked_by_the_constructor():
    for loss in (tl.DirectLoss, tl.StructuredHingeLoss):
        with pytest.raises(ValueError, match="gradient_reduction='average' is not known"):
            loss("ndcg", sync=True, gradient_reduction="average")
    with pytest.raises(TypeError, match="sync must be True or False"):
        tl.lp.AUCLoss(sync="yes")


def test_chunked_retrieval_refuses_a_loss_over_processes():
    criterion = tl.DirectLoss("average_precision", sync=True)
    with pytest.raises(ValueError, match="different numbers of chunks"):
        tl.retrieval.retrieval_loss(torch.randn(4, 2), [0, 0, 1, 1], criterion)
