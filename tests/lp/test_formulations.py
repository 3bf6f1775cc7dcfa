"""Each metric three ways: HiGHS on a program written from the definition, our solver on the formulation, and the exact loss."""

from __future__ import annotations

from itertools import groupby

import numpy as np
import pytest
import torch

import taskloss as tl
from taskloss.lp import LinearProgram, SparseMatrix, Status, formulations
from tests.oracles import metric_programs as oracle
from tests.oracles.linear_programs import highs

BATCHES = 500
RATIOS = {
    "F1": ((2, 0, 0, 0), (2, 1, 1, 0)),
    "F2": ((5, 0, 0, 0), (5, 1, 4, 0)),
    "Jaccard": ((1, 0, 0, 0), (1, 1, 1, 0)),
    "accuracy": ((1, 0, 0, 1), (1, 1, 1, 1)),
    "odd": ((1, 2, -1, 0.5), (1, 1.5, 2, 0.25)),
}


def random_scores(rng: np.random.Generator, shape: int | tuple[int, ...]) -> np.ndarray:
    """Return scores that are normal, tied, saturated, constant or spread over many magnitudes."""
    kind = rng.integers(5)
    if kind == 0:
        return rng.standard_normal(shape)
    if kind == 1:
        return rng.integers(-2, 3, shape) / 2.0
    if kind == 2:
        return 30.0 * rng.integers(-1, 2, shape) + rng.integers(0, 2, shape)
    if kind == 3:
        return np.full(shape, rng.choice([0.0, -0.7, 3.0]))
    return rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 2, shape)


def random_batches(two_classes: bool = True) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return scores and 0/1 targets of at most eight samples, batches of one shape together; single samples and classes too."""
    rng = np.random.default_rng(0)
    least = 1 if two_classes else 0
    sizes = sorted((int(rng.integers(least, 5)), int(rng.integers(least, 5))) for _ in range(BATCHES))
    sizes = [(p, n) if p + n else (1, 0) for p, n in sizes]
    return [(random_scores(rng, p + n), np.arange(p + n) < p) for p, n in sizes]


def solver_values(programs: list[LinearProgram]) -> list[float]:
    """Return the optimal values; programs of one shape are solved in one call."""
    values: list[float] = []
    for _, same in groupby(programs, key=lambda p: (p.num_variables, None if p.b_ub is None else len(p.b_ub))):
        group = list(same)

        def stacked(name, group=group):
            parts = [getattr(program, name) for program in group]
            if parts[0] is None:
                return None
            return torch.stack([p.to_dense() if isinstance(p, SparseMatrix) else p for p in parts]).detach()

        names = ("c", "A_ub", "b_ub", "A_eq", "b_eq", "lower", "upper")
        solution = tl.lp.solve(LinearProgram(*map(stacked, names)), tolerance=1e-10)
        assert set(solution.statuses) == {Status.OPTIMAL}
        values += solution.objective.tolist()
    return values


def tensors(batches):
    return [(torch.from_numpy(scores), torch.from_numpy(target)) for scores, target in batches]


def agree(exact, solved, expected, atol: float = 1e-8) -> None:
    np.testing.assert_allclose(exact, expected, rtol=1e-8, atol=atol)
    np.testing.assert_allclose(solved, expected, rtol=1e-8, atol=atol)


@pytest.mark.parametrize("margin", [0.01, 0.7])
def test_auc(margin):
    batches = random_batches()
    expected = oracle.highs_values([oracle.pairs(s[t], s[~t], margin) for s, t in batches])
    solved = solver_values([formulations.auc_program(s, t, margin=margin) for s, t in tensors(batches)])
    exact = [tl.lp.auc_loss(s, t, margin=margin).item() * int(t.sum()) * int((~t).sum()) for s, t in tensors(batches)]
    agree(exact, solved, expected)
    ramp = [tl.lp.auc_loss(s, t, margin=margin, form="ramp").item() for s, t in tensors(batches)]
    clipped = [np.clip(1 - (s[t][:, None] - s[~t]) / margin, 0, 1).mean() for s, t in batches]
    np.testing.assert_allclose(ramp, clipped, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("kind", ["binary_costs", "costs", "one_vs_all"])
def test_class_auc(kind):
    rng = np.random.default_rng(1)
    classes = 3
    cost = np.array([[0.0, 1.0, 4.0], [2.0, 0.0, 1.0], [1.0, 3.0, 0.0]]) if kind == "costs" else None
    batches, programs, expected = [], [], []
    for _ in range(BATCHES):
        target = rng.integers(0, classes, int(rng.integers(2, 9)))
        scores = random_scores(rng, (len(target), classes))
        parts = oracle.class_pairs(scores, target, 0.5, kind, cost)
        if parts:
            batches.append((scores, target))
            programs.append(parts)
    values = iter(oracle.highs_values([part for parts in programs for part in parts]))
    for parts in programs:
        expected.append(np.mean([next(values) / len(part.c) for part in parts]))
    solved, exact = [], []
    for scores, target in tensors(batches):
        options = {"kind": kind, "cost": cost, "margin": 0.5}
        solved.append(tl.lp.solve(formulations.class_auc_program(scores, target, **options)).objective.item())
        exact.append(tl.lp.multi_class_auc_loss(scores, target, **options).item())
    agree(exact, solved, expected)


@pytest.mark.parametrize("name", RATIOS)
@pytest.mark.parametrize("margin", [0.0, 0.3])
def test_ratios(name, margin):
    numerator, denominator = RATIOS[name]
    batches = [(s, t) for s, t in random_batches(two_classes=False) if t.any() or denominator[3]]
    expected = 1 + np.array(oracle.highs_values([oracle.ratio(s, t, numerator, denominator, margin) for s, t in batches]))
    programs = [formulations.ratio_program(s, t, numerator, denominator, margin=margin) for s, t in tensors(batches)]
    exact = [tl.lp.ratio_loss(s, t, numerator, denominator, margin=margin).item() for s, t in tensors(batches)]
    agree(exact, 1 + np.array(solver_values(programs)), expected)


def test_the_f_score_program_is_that_of_table_5():
    """The objective is c'z / b, each sample has one block of three rows, and the equation is 1'z + b t = b."""
    scores, target = torch.tensor([0.3, -0.2, 1.0], dtype=torch.float64), torch.tensor([1, 0, 1])
    program = formulations.fscore_program(scores, target)
    b, phi = 2.0, torch.tanh(scores)
    assert program.c.tolist() == [-2.0 / b, 0.0, -2.0 / b, 0.0]
    assert program.A_eq.to_dense().tolist() == [[1.0, 1.0, 1.0, b]]
    assert program.b_eq.tolist() == [b]
    for i in range(3):
        block = program.A_ub.to_dense()[[i, 3 + i, 6 + i]][:, [i, 3]]
        assert torch.equal(block, torch.tensor([[-1.0, phi[i]], [1.0, -1.0 - phi[i]], [1.0, -1.0]], dtype=torch.float64))


@pytest.mark.parametrize("two_sided", [False, True])
@pytest.mark.parametrize(("recall", "margin"), [(0.8, 0.0), (1.0, 0.25), (0.3, 0.5)])
def test_precision_at_recall(recall, margin, two_sided):
    batches = random_batches()
    options = {"margin": margin, "two_sided": two_sided}
    losses = [tl.lp.precision_at_recall_loss(s, t, recall=recall, **options).item() for s, t in tensors(batches)]
    possible = [value < 1.0 + 1e-12 for value in losses]
    assert two_sided or all(possible)
    kept = [batch for batch, good in zip(batches, possible, strict=True) if good]
    programs = [oracle.precision_at_recall(s, t, recall, margin, two_sided) for s, t in kept]
    solved = solver_values([formulations.precision_at_recall_program(s, t, recall, **options) for s, t in tensors(kept)])
    exact = [value for value, good in zip(losses, possible, strict=True) if good]
    agree(exact, 1 + np.array(solved), 1 + np.array(oracle.highs_values(programs)))


def test_a_recall_out_of_reach_has_a_certificate_and_the_loss_says_what_is_missing():
    count = 0
    for scores, target in random_batches()[::7]:
        loss = tl.lp.precision_at_recall_loss(*tensors([(scores, target)])[0], recall=0.9, margin=0.1, two_sided=True).item()
        status, _ = highs(oracle.precision_at_recall(scores, target, 0.9, 0.1, True))
        assert (status == "INFEASIBLE") == (loss > 1.0)
        if status == "INFEASIBLE":
            count += 1
            pair = tensors([(scores, target)])[0]
            solution = tl.lp.solve(formulations.precision_at_recall_program(*pair, 0.9, margin=0.1, two_sided=True))
            assert solution.status is Status.INFEASIBLE
            reached = -tl.lp.solve(formulations.greatest_recall_program(*pair, margin=0.1)).objective.item()
            assert loss == pytest.approx(1.9 - reached, abs=1e-8)
    assert count > 5


@pytest.mark.parametrize("two_sided", [False, True])
@pytest.mark.parametrize(("precision", "slack", "margin"), [(0.8, 10.0, 0.0), (0.95, 3.0, 0.25), (0.5, 100.0, 0.5)])
def test_recall_at_precision(precision, slack, margin, two_sided):
    batches = random_batches()
    options = {"slack": slack, "margin": margin, "two_sided": two_sided}
    expected = oracle.highs_values([oracle.recall_at_precision(s, t, precision, slack, margin, two_sided) for s, t in batches])
    solved = solver_values([formulations.recall_at_precision_program(s, t, precision, **options) for s, t in tensors(batches)])
    exact = [tl.lp.recall_at_precision_loss(s, t, precision=precision, **options).item() for s, t in tensors(batches)]
    agree(exact, 1 + np.array(solved), 1 + np.array(expected))


@pytest.mark.parametrize("make", [formulations.auc_program, lambda s, t: formulations.precision_at_recall_program(s, t, 0.8)])
def test_one_class_is_refused_by_the_programs_of_rankings(make):
    with pytest.raises(ValueError, match="one class only"):
        make(torch.zeros(3), torch.ones(3))


def test_bad_input_of_a_program():
    with pytest.raises(ValueError, match=r"target\[1\] is -1"):
        formulations.fscore_program(torch.zeros(2), torch.tensor([1, -1]))
    with pytest.raises(ValueError, match="one shape"):
        formulations.auc_program(torch.zeros(2), torch.zeros(3))
    with pytest.raises(ValueError, match="needs cost="):
        formulations.class_auc_program(torch.zeros(2, 2), torch.tensor([0, 1]), kind="costs")
