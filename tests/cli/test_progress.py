"""Progress: plain lines where there is no terminal, and a time left that is about right."""

from __future__ import annotations

from pathlib import Path

import pytest

from taskloss.cli import progress
from taskloss.cli.time_left import TrainingClock, comparison_seconds_left
from tests.cli.running import invoke, write_claims


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.mark.parametrize(("networks", "trees"), [(5, 0), (5, 4), (0, 5)])
@pytest.mark.parametrize("warm_up_steps", [0, 50])
def test_time_left_of_an_ensemble(warm_up_steps, networks, trees):
    """Steps of a warm-up that take a thirtieth of the time of the others, members that stop early, and trees after networks."""
    clock = Clock()
    steps, stop, slow, fast = 300, 220, 0.3, 0.01
    phases = [(warm_up_steps, fast), (stop - warm_up_steps, slow)]
    members = [phases] * networks + [[(100, 0.1)]] * trees
    total = sum(count * each for phases in members for count, each in phases)
    limits = [steps] * networks + [100] * trees
    timer = TrainingClock([1.0] * networks + [0.2] * trees, limits, warm_up=bool(networks and warm_up_steps), now=clock)
    before = 0.0
    for member, phases in enumerate(members):
        for count, each in phases:
            for step in range(1, count + 1):
                clock.seconds += each
                share, left = timer.update(member, step)
                assert before <= share <= 1, "the bar never goes back"
                before = share
                really = total - clock.seconds
                if left is not None and really > 1:
                    assert really / 2 < left < 2 * really
    assert left is not None
    assert left < 1


def test_time_left_of_a_comparison():
    seconds = {"fast": [1.0, 1.2], "slow": [90.0]}
    assert comparison_seconds_left(seconds, {"fast": 3, "slow": 4}, jobs=1) == pytest.approx(363.3)
    assert comparison_seconds_left(seconds, {"fast": 3, "slow": 4}, jobs=1, spent=60) == pytest.approx(303.3)
    assert comparison_seconds_left(seconds, {"fast": 3, "slow": 4, "new": 5}, jobs=1) is None, "not known, so not guessed"
    assert comparison_seconds_left(seconds, {"fast": 0, "slow": 0}, jobs=2) == 0


def test_lines_without_a_terminal(capsys):
    clock = Clock()
    report = progress._line_writer(10.0, now=clock)
    for second in range(200):
        clock.seconds = float(second)
        report(second / 20, "Training", None if second < 20 else 200.0 - second)
    lines = capsys.readouterr().err.splitlines()
    assert lines[:3] == ["Training: 2%, 5 s", "Training: 8%, 15 s", "Training: 12%, 25 s, about 3 min left"]
    assert len(lines) == 9


def test_training_in_a_pipe_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("FIRST_LINE", "NEXT_LINE"):
        monkeypatch.setattr(progress, name, 0.0)
    claims = write_claims(tmp_path / "claims.csv", rows=120)
    result = invoke("train", claims, "--target", "label", "--iterations", "10", "--output", tmp_path / "model")
    assert result.exit_code == 0
    lines = [line for line in result.stderr.splitlines() if line.startswith("Training, average precision: ")]
    assert len(lines) == 15 * 10 + 5 * 30 + 5 * 30, "five networks of three losses, five boosters and five random forests"
    assert lines[-1].startswith("Training, average precision: 100%")
    result = invoke(
        *("compare", claims, "--target", "label", "--iterations", "3", "--splits", "2", "--methods", "direct", "--jobs", "1"),
        *("--output", tmp_path / "report"),
    )
    assert result.exit_code == 0
    assert "direct, split 2 of 2: " in result.stderr
    assert " left" in result.stderr
