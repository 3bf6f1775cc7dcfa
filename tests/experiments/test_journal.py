"""Finished runs survive a kill at any moment."""

from __future__ import annotations

import pytest

from taskloss.experiments.journal import Journal


def test_a_line_that_was_cut_off_is_dropped_and_written_again(tmp_path):
    path = tmp_path / "cache" / "runs.jsonl"
    journal = Journal(path)
    for seed in range(3):
        journal.add({"seed": seed, "rate": 0.1}, {"value": seed / 2})
    whole = path.read_bytes()
    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        read = Journal(path)
        # A line is complete once its closing brace is there, with or without the end of the line.
        assert len(read) == sum(length >= end for end in _ends_of_lines(whole))
        read.add({"seed": 3, "rate": 0.1}, {"value": 9.0})
        again = Journal(path)
        assert len(again) == len(read)
        assert again.find({"rate": 0.1, "seed": 3}) == {"value": 9.0}


def _ends_of_lines(content: bytes) -> list[int]:
    return [index for index, byte in enumerate(content) if byte == ord("\n")]


def test_a_damaged_line_in_the_middle_is_an_error(tmp_path):
    path = tmp_path / "runs.jsonl"
    path.write_text('{"cell": {"seed": 0}, "record": {}}\n{"cell": \n{"cell": {"seed": 1}, "record": {}}\n')
    with pytest.raises(ValueError, match="line 2 of .*runs.jsonl is damaged"):
        Journal(path)


def test_an_unknown_cell_has_no_record(tmp_path):
    assert Journal(tmp_path / "none.jsonl").find({"seed": 0}) is None


def test_the_seconds_of_a_run_count_once(tmp_path):
    path = tmp_path / "runs.jsonl"
    journal = Journal(path)
    for seed, seconds in ((0, 1.5), (1, 2.0), (0, 1.5)):
        journal.add({"seed": seed}, {"seconds": seconds})
    assert journal.seconds == Journal(path).seconds == 3.5
