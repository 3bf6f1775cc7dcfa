"""A memory of scores over processes: every rank remembers the samples of all, and learns as one process would."""

from __future__ import annotations

from tests.distributed.running import run


def test_memories_are_those_of_one_process(tmp_path):
    reports = run("memory_worker.py", 2, tmp_path)
    assert [report["differences"] for report in reports] == [[], []]
    assert all("weights of queries" in report["weighted"][1] for report in reports)
    assert all("the ranks differ" in report["dtype"][1] for report in reports), "no rank is left waiting"
