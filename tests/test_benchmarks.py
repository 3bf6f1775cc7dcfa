"""Scripts in ``benchmarks``: those that train run from end to end in their quick form, and their own measures are right."""

from __future__ import annotations

import dataclasses
import doctest
import itertools
import json
import math
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks import (
    auto,
    batches,
    boosting,
    cells,
    ensemble_losses,
    estimators,
    every_metric,
    from_scratch,
    fscore,
    lp,
    lp_general,
    lp_losses,
    measure,
    netlib,
    networks,
    segmentation,
    small_batches,
    tree_sizes,
    when_it_helps,
)
from sklearn.metrics import f1_score

import taskloss as tl

DATA = Path(__file__).parent.parent.parent / "shared" / "data"


@pytest.fixture
def run_quickly(monkeypatch, capsys):
    def run(module: ModuleType, folder: str, output: Path) -> dict[str, Any]:
        if not (DATA / folder).is_dir():
            pytest.skip(f"no data folder {DATA / folder}")
        monkeypatch.setattr(sys, "argv", ["benchmark", "--data", str(DATA), "--quick", "--output", str(output)])
        module.main()
        assert "s in all" in capsys.readouterr().out
        return json.loads(output.read_text())

    threads = torch.get_num_threads()
    yield run
    torch.set_num_threads(threads)


def test_fscore_runs_and_goes_on(run_quickly, tmp_path):
    first = run_quickly(fscore, "tabular", tmp_path / "fscore.json")
    assert set(first["summary"]) == set(fscore.CONDITIONS)
    assert {record["method"] for record in first["records"]} == set(fscore.METHODS)
    lines = (tmp_path / "fscore.jsonl").read_text().splitlines()
    assert len(lines) == len(fscore.CONDITIONS) * sum(len(fscore.all_settings(method)) for method in fscore.METHODS)
    assert run_quickly(fscore, "tabular", tmp_path / "fscore.json") == first  # All runs were known, their seconds too.


def test_segmentation_runs(run_quickly, tmp_path):
    result = run_quickly(segmentation, "voc2012_det_seg_192", tmp_path / "segmentation.json")
    assert set(result["summary"]) == set(segmentation.METHODS)
    assert len(result["records"]) == sum(len(segmentation.all_settings(method)) for method in segmentation.METHODS)


def test_boosting_runs_and_goes_on(run_quickly, tmp_path):
    first = run_quickly(boosting, "tabular", tmp_path / "boosting.json")
    assert {(r["metric"], r["library"], r["method"], r["condition"]) for r in first["records"]} == set(
        itertools.product(("AP", "F1"), boosting.GRIDS, boosting.METHODS, boosting.CONDITIONS)
    )
    row = first["summary"]["AP, LightGBM, noise, finish, keel_pima"]
    own, ours = (
        next(
            r["test"]
            for r in first["records"]
            if (r["metric"], r["library"], r["condition"], r["method"]) == ("AP", "LightGBM", "noise", method)
        )
        for method in ("own", "finish")
    )
    assert row["gain"] == pytest.approx(100 * (ours - own))
    assert run_quickly(boosting, "tabular", tmp_path / "boosting.json") == first


@pytest.mark.skipif(not (DATA / "tabular").is_dir(), reason="no data folder")
def test_boosting_flips_labels_of_seen_samples_only():
    clean, noisy = (boosting.read_split(DATA, "keel_pima", condition, 0) for condition in boosting.CONDITIONS)
    shares = [float((a.target != b.target).mean()) for a, b in zip(clean, noisy, strict=True)]
    np.testing.assert_allclose(shares, [0.2, 0.2, 0.0], atol=0.005)


def test_estimators_runs_and_goes_on(run_quickly, tmp_path):
    first = run_quickly(estimators, "tabular", tmp_path / "estimators.json")
    assert {(record["method"], record["condition"]) for record in first["records"]} == {
        (method, condition) for method in estimators.METHODS for condition in estimators.CONDITIONS
    }
    direct, other = (
        next(r for r in first["records"] if (r["method"], r["condition"]) == (method, "noise")) for method in estimators.METHODS
    )
    noise = first["summary"]["mean of all"]["noise"]
    assert noise["direct"] == pytest.approx(100 * direct["test_ap"])
    assert noise["cross_entropy"] == pytest.approx(100 * other["test_ap"])
    assert run_quickly(estimators, "tabular", tmp_path / "estimators.json") == first


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_auto_runs_and_goes_on(run_quickly, tmp_path):
    first = run_quickly(auto, "tabular", tmp_path / "auto.json")
    assert [(record["metric"], record["condition"]) for record in first["records"]] == list(itertools.chain(*auto.ORDER))
    for record in first["records"]:
        assert set(record["test"]) == set(auto.METHODS)
        row = first["summary"][f"{record['metric']}, {record['condition']}"]["hinge"]
        assert row["lead"] == pytest.approx(100 * (record["test"]["auto"] - record["test"]["hinge"]))
    assert run_quickly(auto, "tabular", tmp_path / "auto.json") == first


def test_every_metric_runs_and_goes_on(run_quickly, tmp_path, monkeypatch):
    chosen = {name: every_metric.METRICS[name] for name in ("ndcg", "f_score")}
    monkeypatch.setattr(every_metric, "METRICS", chosen)
    first = run_quickly(every_metric, "tabular", tmp_path / "every_metric.json")
    assert {record["metric"] for record in first["records"]} == set(chosen)
    methods = {metric: {row["method"] for row in first["summary"]["gains"] if row["metric"] == metric} for metric in chosen}
    # Each update once, by the name that is not the default's; only the F-score has a linear program.
    assert methods["ndcg"] == set(every_metric.METHODS) - {"direct_positive", "lp"}
    assert methods["f_score"] == set(every_metric.METHODS) - {"direct_central"}
    assert run_quickly(every_metric, "tabular", tmp_path / "every_metric.json") == first


def test_stuck_runs_are_found():
    """The direct loss without the check ends far below on one split; a metric that always has a warm-up has no such run."""
    tests = [{"cross_entropy": 50.0, "direct": 48.0, every_metric.NO_CHECK: value} for value in (48.0, 0.0)]
    records = [{"metric": "ndcg", "set": "bin_wilt", "seed": k, "test": test} for k, test in enumerate(tests)]
    records.append({"metric": "f_score", "set": "bin_wilt", "seed": 0, "test": {"cross_entropy": 50.0, "direct": 48.0}})
    assert [row["seed"] for row in every_metric.find_stuck(records)] == [1]


def test_cells_below_cross_entropy_are_found():
    """One method is behind by 4, 5 and 6 points, one by 7, 0 and 1, which is too uncertain, one by half a point each time."""
    tests = [{"cross_entropy": 50.0, "direct": 50.0 - a, "hinge": 50.0 - b, "lp": 49.5} for a, b in ((4, 7), (5, 0), (6, 1))]
    rows = every_metric.summarize([{"metric": "f_score", "set": "bin_wilt", "seed": k, "test": t} for k, t in enumerate(tests)])
    assert {row["method"]: row["below"] for row in rows} == {"direct": True, "hinge": False, "lp": False}
    assert (rows[0]["gain"], rows[0]["error"]) == pytest.approx((-5.0, 1 / 3**0.5))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_networks_run_and_go_on(run_quickly, tmp_path):
    first = run_quickly(networks, "tabular", tmp_path / "networks.json")
    assert set(first["summary"]) == set(networks.VARIANTS) - {networks.DEFAULT}
    gains = [
        100 * (record["test_ap"] - default["test_ap"])
        for record, default in itertools.product(first["records"], repeat=2)
        if (record["variant"], default["variant"], record["condition"]) == ("piecewise", networks.DEFAULT, "noise")
        and all(record[key] == default[key] for key in ("method", "condition"))
    ]
    assert first["summary"]["piecewise"]["noise"][0] == pytest.approx(sum(gains) / 2)
    assert run_quickly(networks, "tabular", tmp_path / "networks.json")["summary"] == first["summary"]


def test_networks_in_one_equal_their_members():
    torch.manual_seed(0)
    features = torch.randn(7, 3)
    together = networks.TabM(3, 4)
    for member, scores in enumerate(together(features).T):
        values = features * together.factors[member]
        for layer in together.layers:
            values = layer(values).relu()
        expected = values @ together.weight[member, :, 0] + together.bias[member]
        torch.testing.assert_close(scores, expected.flatten())
    packed = networks.Packed(3, 4)
    for member, scores in enumerate(packed(features).T):
        values = features
        for weight, bias in zip(packed.weights, packed.biases, strict=True):
            values = values.relu() if weight is not packed.weights[0] else values
            values = values @ weight[member] + bias[member]
        torch.testing.assert_close(scores, values.flatten())


def test_ensemble_losses_run_and_go_on(run_quickly, tmp_path):
    first = run_quickly(ensemble_losses, "tabular", tmp_path / "losses.json")
    assert set(first["summary"]) == set(ensemble_losses.BASES)
    assert {record["variant"] for record in first["records"]} == set(ensemble_losses.LOSSES)
    assert run_quickly(ensemble_losses, "tabular", tmp_path / "losses.json") == first


def test_relative_epsilon_is_epsilon_times_the_deviation():
    torch.manual_seed(0)
    scores, target = torch.randn(40), torch.arange(40) % 5 == 0
    gradients = []
    for factor in (1.0, 50.0):
        scaled = (factor * scores).requires_grad_()
        ensemble_losses.relative(tl.AveragePrecision())(scaled, target).backward()
        gradients.append(factor * scaled.grad)
    torch.testing.assert_close(gradients[0], gradients[1])
    plain = scores.clone().requires_grad_()
    tl.DirectLoss(tl.AveragePrecision(), epsilon=ensemble_losses.EPSILON * float(scores.std()))(plain, target).backward()
    torch.testing.assert_close(gradients[0], plain.grad)


def test_sum_counts_the_entropy_per_positive():
    scores = torch.tensor([2.0, -1.0, 0.5, -3.0])
    target = torch.tensor([1, 0, 0, 1])
    # Logistic losses log(1 + exp(-2)), log(1 + exp(-1)), log(1 + exp(0.5)) and log(1 + exp(3)); AP is (1 + 2 / 4) / 2.
    entropy = sum(math.log1p(math.exp(value)) for value in (-2.0, -1.0, 0.5, 3.0))
    value = ensemble_losses.summed(tl.AveragePrecision())(scores, target)
    assert value.item() == pytest.approx(entropy / 2 + 10 * (1 - 0.75))


def test_when_it_helps_runs_and_draws(run_quickly, monkeypatch, tmp_path):
    first = run_quickly(when_it_helps, "tabular", tmp_path / "map.json")
    assert run_quickly(when_it_helps, "tabular", tmp_path / "map.json") == first
    record = next(each for each in first["records"] if each["condition"] == "noise")["f1"]
    gain = first["summary"]["f1/noise/last/linear/10"]
    assert gain["mean"] == pytest.approx(100 * (record["direct"]["last"] - record["cross_entropy"]["last"]))
    gains = {key: when_it_helps.Gain(**each) for key, each in first["summary"].items()}
    when_it_helps.draw_map(gains, "f1", tmp_path / "f1.svg")
    assert (tmp_path / "f1.svg").read_text().count("</svg>") == 1


def test_when_it_helps_draws_nested_rows_that_do_not_overlap():
    target = np.arange(1000) % 10 == 0
    rows = when_it_helps.Rows(np.arange(1000.0)[:, None], target.astype(np.int64))
    small, large = (when_it_helps.draw_rows(rows, count, 40, seed=0) for count in (10, 40))
    for parts, positives in ((small, (10, 3, 50)), (large, (40, 10, 50))):
        assert tuple(part.target.sum() for part in parts) == positives
        assert tuple(len(part.target) for part in parts) == tuple(10 * count for count in positives)
        drawn = np.concatenate([part.features[:, 0] for part in parts])
        assert len(np.unique(drawn)) == len(drawn)
        np.testing.assert_array_equal(target[drawn.astype(int)], np.concatenate([part.target for part in parts]))
    assert set(small[0].features[:, 0]) < set(large[0].features[:, 0])
    np.testing.assert_array_equal(small[2].features, large[2].features)


def test_when_it_helps_averages_seeds_before_tables():
    def record(direct: float, entropy: float) -> dict[str, Any]:
        values = {
            "direct": dict.fromkeys(when_it_helps.STOPS, direct),
            "cross_entropy": dict.fromkeys(when_it_helps.STOPS, entropy),
        }
        return dict.fromkeys(when_it_helps.METRICS, values)

    cases = {("wilt", 0): (0.5, 0.4), ("wilt", 1): (0.5, 0.2), ("adult", 0): (0.6, 0.6)}  # gains of 10, 30 and 0 points
    records = {when_it_helps.Case(seed, table, 10, "clean", "small"): record(*pair) for (table, seed), pair in cases.items()}
    gain = when_it_helps.summarize(records)["ndcg/clean/best/small/10"]
    assert gain == pytest.approx((10.0, 10.0, 45.0, 2))  # Means 20 and 0: their mean, and |20 - 0| / 2 as its error.
    records[when_it_helps.Case(0, "wilt", 30, "clean", "small")] = record(0.4, 0.4)  # Of wilt, 20 and 0: 10, like one seed of it.
    assert when_it_helps.gain_of(records, "ndcg", "best") == pytest.approx((5.0, 5.0, 47.5, 2))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_batches_runs_and_goes_on(run_quickly, tmp_path):
    first = run_quickly(batches, "voc2012_action", tmp_path / "batches.json")
    assert set(first["summary"]) == set(batches.SETS)
    record = next(r for r in first["records"] if (r["set"], r["method"]) == ("krvsk", "AP, batches of 64 with memory"))
    assert (record["updates"]["steps"], record["samples"]["steps"]) == (4, 2 * record["batches"])
    assert run_quickly(batches, "voc2012_action", tmp_path / "batches.json") == first


def test_batches_choose_the_learning_rate_by_validation():
    runs = [
        {"rate": rate, "updates": {"steps": 9, "validation": validation, "test": test}}
        for rate, validation, test in ((0.001, 0.4, 0.9), (0.01, 0.5, 0.2), (0.01, 0.6, 0.4), (0.001, 0.5, 0.9))
    ]
    row = batches.summarize(runs, "updates")
    assert (row["rate"], row["mean"], row["error"]) == (0.01, pytest.approx(0.3), pytest.approx(0.1))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_small_batches_run_and_go_on(run_quickly, tmp_path):
    first = run_quickly(small_batches, "tabular", tmp_path / "small.json")
    assert run_quickly(small_batches, "tabular", tmp_path / "small.json") == first
    name = small_batches.title("hinge of AP", 64)
    tried = [r for r in first["records"] if (r["loss"], r["size"]) == ("hinge of AP", 64)]
    tuned = [r for r in tried if r["seed"] == small_batches.TUNING_SEED]
    (reported,) = (r for r in tried if r["seed"] == 0)
    assert reported["rate"] == max(tuned, key=lambda record: record["validation"])["rate"] == first["summary"][name]["rate"]
    assert reported["steps"] == 4  # One epoch of 252 rows.
    assert first["summary"][name]["mean"] == pytest.approx(100 * reported["test"])


def test_tree_sizes_runs_and_goes_on(run_quickly, tmp_path):
    first = run_quickly(tree_sizes, "tabular", tmp_path / "tree_sizes.json")
    assert {(r["method"], r["leaves"], r["condition"]) for r in first["records"]} == {
        (method, leaves, condition)
        for method, several in tree_sizes.LEAVES.items()
        for leaves in several
        for condition in tree_sizes.CONDITIONS
    }
    small, large = (
        r["test"]
        for r in first["records"]
        if (r["condition"], r["leaves"]) in (("clean", 7), ("clean", 63)) and r["method"] == "lightgbm"
    )
    assert small != large
    assert run_quickly(tree_sizes, "tabular", tmp_path / "tree_sizes.json") == first


def test_small_batches_average_seeds_before_tables():
    def record(loss: str, table: str, test: float) -> dict[str, Any]:
        return {"loss": loss, "size": 64, "rate": 0.01, "table": table, "test": test}

    hinge = [record("hinge of AP", *each) for each in (("wilt", 0.5), ("wilt", 0.7), ("adult", 0.6))]
    entropy = [record("cross-entropy", *each) for each in (("wilt", 0.4), ("wilt", 0.4), ("adult", 0.6))]
    row = small_batches.summarize(hinge + entropy)["hinge of AP, batches of 64"]
    assert row["tables"] == pytest.approx({"wilt": 60.0, "adult": 60.0})
    assert (row["mean"], row["gain"], row["error"]) == pytest.approx((60.0, 10.0, 10.0))  # Gains of 20 and 0 points.


def test_lp_losses_run(run_quickly, tmp_path):
    result = run_quickly(lp_losses, "tabular", tmp_path / "lp_losses.json")
    assert set(result["summary"]) == set(lp_losses.CONTESTS)
    assert {record["method"] for record in result["records"]} == set(lp_losses.METHODS)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_from_scratch_runs_every_problem_and_goes_on(monkeypatch, tmp_path):
    short = {name: dataclasses.replace(problem, steps=2) for name, problem in from_scratch.PROBLEMS.items()}
    monkeypatch.setattr(from_scratch, "PROBLEMS", short)
    tasks = ("jaccard", "zero_one", "graded_ndcg", "multi_class", "structured")
    output = tmp_path / "from_scratch.json"
    monkeypatch.setattr(sys, "argv", ["from_scratch", "--seeds", "1", "--output", str(output), "--tasks", *tasks])
    from_scratch.main()
    first = json.loads(output.read_text())
    assert {title.split(", ")[0] for title in first["summary"]} == set(short)
    assert {"positive", "negative", "central", "hinge", "cross-entropy"} <= first["summary"]["table, zero_one, swaps"].keys()
    from_scratch.main()
    assert json.loads(output.read_text()) == first


@pytest.mark.parametrize(
    "module", [boosting, cells, estimators, fscore, lp_losses, measure, netlib, networks, small_batches, when_it_helps]
)
def test_doctests(module):
    assert doctest.testmod(module).failed == 0


def test_best_threshold_is_the_best_of_all():
    rng = np.random.default_rng(0)
    for _ in range(10):
        scores, target = torch.from_numpy(rng.integers(-3, 4, 12).astype(float)), torch.from_numpy(rng.integers(0, 2, 12))
        target[0] = 1
        value, threshold = fscore.best_threshold(scores, target)
        assert value == pytest.approx(max(f1_score(target.numpy(), (scores > bound).numpy()) for bound in np.arange(-4, 4) + 0.5))
        assert value == pytest.approx(f1_score(target.numpy(), (scores > threshold).numpy()))


def masks_and_scores() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    masks = torch.randint(0, 1 + len(segmentation.CLASSES), (3, 8, 8), generator=generator).to(torch.uint8)
    masks[0, :2] = segmentation.VOID
    return masks, torch.randn(3, len(segmentation.CLASSES), 8, 8, generator=generator)


@pytest.mark.parametrize("surrogate", ["lovasz", "soft"])
def test_surrogates_are_the_jaccard_loss_at_the_corners(surrogate):
    masks, scores = masks_and_scores()
    target = segmentation.one_mask_per_class(masks)
    exact = tl.DirectLoss(tl.Jaccard())(scores, target, dim=(0, 2, 3), ignore_index=segmentation.VOID)
    if surrogate == "soft":
        value = segmentation.soft_jaccard(scores.sign() * 100, target)
    else:
        # A hinge error of 1 where the prediction is wrong, of 0 where it is right.
        value = segmentation.lovasz_hinge(torch.where((scores > 0) == (target == 1), scores.sign(), 0.0), target)
    assert value.item() == pytest.approx(exact.item(), rel=1e-5)


def test_evaluation_is_the_jaccard_score(monkeypatch):
    masks, scores = masks_and_scores()
    monkeypatch.setattr(segmentation, "SIDE", 8)
    monkeypatch.setattr(segmentation, "TEST_STRIDE", 1)
    bound = torch.linspace(-0.5, 0.5, len(segmentation.CLASSES))
    result = segmentation.evaluate(scores, masks, bound)
    target = segmentation.one_mask_per_class(masks)
    options = {"ignore_index": segmentation.VOID, "reduction": "none"}
    shifted = scores - bound[:, None, None]
    np.testing.assert_allclose(result["pooled"], tl.metrics.jaccard_score(shifted, target, dim=(0, 2, 3), **options))
    each = tl.metrics.jaccard_score(shifted, target, dim=(2, 3), **options)
    shown = (target == 1).any(3).any(2).numpy()
    np.testing.assert_allclose(result["per_image"], (each * shown).sum(0) / shown.sum(0))


@pytest.fixture
def run_netlib(monkeypatch, capsys):
    if not (DATA / "netlib").is_dir():
        pytest.skip(f"no data folder {DATA / 'netlib'}")

    def run(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["netlib", "--data", str(DATA / "netlib"), "--only", "AFIRO", "itest2", *arguments])
        netlib.main()
        return capsys.readouterr().out

    return run


def test_netlib_keeps_its_rows_and_finds_no_change(run_netlib, tmp_path):
    kept = tmp_path / "netlib.json"
    table = run_netlib("--json", str(kept))
    assert "solved to 1e-08: 1 of 1" in table
    assert "proved infeasible: 1 of 1" in table
    afiro, itest2 = netlib.read_results(kept)
    assert (afiro.rows, afiro.columns, afiro.nonzeros, afiro.status) == (27, 32, 83, "OPTIMAL")
    assert (itest2.kind, itest2.status) == ("infeasible", "INFEASIBLE")
    assert math.isnan(itest2.objective_error)
    assert list(tmp_path.iterdir()) == [kept]
    comparison = run_netlib("--compare", str(kept)).split("2 programs in both:\n")[1]
    assert [line.split(":")[0] for line in comparison.splitlines()] == ["iterations", "seconds"]


def test_netlib_tells_what_changed(run_netlib, tmp_path):
    kept = tmp_path / "netlib.json"
    run_netlib("--json", str(kept))
    rows = json.loads(kept.read_text())
    rows[0]["objective_error"], rows[1]["status"] = 1e-3, "UNBOUNDED"
    measure.write_json(kept, rows)
    comparison = run_netlib("--compare", str(kept))
    assert "AFIRO       error of the objective 1.0e-03 -> " in comparison
    assert "itest2      status UNBOUNDED -> INFEASIBLE" in comparison


@pytest.mark.parametrize("rival", lp.RIVALS, ids=lambda rival: rival.name)
def test_rivals_solve_the_same_program(rival):
    pytest.importorskip(rival.package, reason="rivals come with taskloss[peers]")
    with measure.one_thread():
        for shape in ((8,), (3, 8)):
            program = lp.FScore(*shape)
            solve = rival.make(program)
            x = program.forward(solve)()
            assert x.shape == program.cost.shape
            assert program.suboptimality(x) < 1e-3
        if rival.has_gradient:
            program.step(solve)()
            theirs = program.scores.grad.clone()
            program.step(lp.ours(program))()
            np.testing.assert_allclose(theirs, program.scores.grad, atol=1e-2)


@pytest.mark.parametrize("solver", ["ours", "moreau", "clarabel"])
@pytest.mark.parametrize("make", [lp_general.transport, lp_general.dense])
@pytest.mark.parametrize("batch", [(), (3,)])
def test_general_programs_have_the_optima_of_highs(make, batch, solver):
    if solver != "ours":
        pytest.importorskip(solver, reason="rivals come with taskloss[peers]")
    program = make(4, *batch)
    with measure.one_thread():
        x = getattr(program, solver)()()
        assert x.shape == program.cost.shape
        np.testing.assert_allclose((program.cost * x.detach()).sum(-1).reshape(-1), program.optima(), rtol=1e-7)
        if solver == "moreau":
            program.step(program.moreau())()
            theirs = program.rhs.grad.clone()
            program.step(program.ours())()
            np.testing.assert_allclose(theirs, program.rhs.grad, atol=1e-5)


def test_missing_peer_is_named(capsys):
    assert measure.is_installed("torch")
    assert not measure.is_installed("no_such_peer")
    assert "no_such_peer is not installed" in capsys.readouterr().out


def test_times_in_turn_on_one_thread():
    threads = torch.get_num_threads()
    counts = []
    with measure.one_thread():
        times = measure.in_turn(lambda: counts.append(torch.get_num_threads()), lambda: sum(range(1000)), seconds=0.0)
    assert min(times) > 0.0
    assert set(counts) == {1}
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize("name", ["path", "knapsack", "terrain"])
def test_losses_of_pyepo_and_ours_are_the_same(name):
    """The regret is that of PyEPO, and so are the gradients of the losses that need no noise."""
    pyepo = pytest.importorskip("pyepo", reason="PyEPO is not installed: pip install 'taskloss[peers]'")
    from benchmarks import pyepo_tables as tables

    problem = tables.make_problem(name, 0)
    problem = problem._replace(inputs=problem.inputs[:60], costs=problem.costs[:60], training=20)
    network = problem.make_network()
    data, costs = torch.utils.data, problem.costs[problem.training :]
    best = problem.solve(costs)
    values = (costs * best).sum(1, keepdim=True)
    loader = data.DataLoader(data.TensorDataset(problem.inputs[problem.training :], costs, best, values), batch_size=40)
    expected = 100 * pyepo.metric.regret(network, tables.make_model(problem), loader)
    assert problem.test_regret(network) == pytest.approx(expected, rel=1e-5)
    predicted = network(problem.inputs[problem.training :]).detach().requires_grad_()
    batch = len(predicted)
    for theirs, ours, settings in (
        ("SPO+", "SPO+", {}),
        ("PG, two sides", "direct, central", {"step": 2.0, "epsilon": 2.0}),
        ("DBB", "direct, negative", {"lambd": 2.0 * batch, "epsilon": 2.0}),
        ("NID", "NID", {}),
    ):
        gradients = [
            torch.autograd.grad(make(method, problem, settings, 0)(predicted, costs, best, values), predicted)[0]
            for make, method in ((tables.make_theirs, theirs), (tables.make_ours, ours))
        ]
        torch.testing.assert_close(*gradients, msg=f"{theirs} of {name}")
