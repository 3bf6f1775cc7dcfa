"""A memory of scores over processes: every rank remembers the samples of all, and learns as one process would."""

from __future__ import annotations

from tests.distributed.running import run


def test_memories_are_those_of_one_process(tmp_path):
    reports = run("memory_worker.py", 2, tmp_path)
    assert [report["differences"] for report in reports] == [[], []]
    assert all("weights of queries" in report["weighted"][1] for report in reports)

    first, second = (report["errors"] for report in reports)
    assert first == second, "no rank is left waiting: all raise the same error"
    expected = {
        "dtype": "the ranks differ in scores",
        "length": "on rank 1: scores has shape (3,) and target has shape (2,)",
        "array": "on rank 1: target must be a torch.Tensor",
        "num_relevant": "on rank 1: num_relevant cannot be combined",
        "dim": "on rank 1: dim=1 is out of range",
        "ignore_index": "on rank 1: ignore_index must be an integer",
        "weight": "the ranks differ in weight (not given on rank 0, given on rank 1)",
        "groups": "the ranks differ in groups (not given on rank 0",
        "restored": "the ranks differ in the memory, to be restored or reset on all ranks alike (batches of 6 samples of digest",
        "batches": "the ranks differ in batches (2 on rank 0, 3 on rank 1)",
    }
    assert first.keys() == expected.keys()
    assert [name for name, message in expected.items() if message not in first[name][1]] == []
