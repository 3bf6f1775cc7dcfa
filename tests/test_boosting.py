"""Objectives and metrics for LightGBM and XGBoost."""

from __future__ import annotations

import pickle

import lightgbm
import numpy as np
import pytest
import torch
import xgboost
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, f1_score

import taskloss as tl
from taskloss import boosting

LIGHTGBM = {"metric": "None", "num_threads": 1, "verbosity": -1, "deterministic": True, "force_row_wise": True, "num_leaves": 7}
XGBOOST = {"nthread": 1, "max_depth": 3, "tree_method": "hist", "base_score": 0.0, "disable_default_eval_metric": 1}
RANKINGS = ("average_precision", "roc_auc", "ndcg", "partial_auc", "reciprocal_rank", "precision_at_k")
LABELS = ("f_score", "jaccard", "zero_one", "balanced_error")


@pytest.fixture(scope="module")
def table() -> tuple[np.ndarray, np.ndarray]:
    """Features on a coarse grid and few of them, so that no two splits are alike but for rounding."""
    rng = np.random.default_rng(0)
    features = rng.integers(0, 12, (600, 4)).astype(np.float64)
    logits = 0.9 * features[:, 0] - 0.5 * features[:, 1] + 0.3 * features[:, 2] - 7 + rng.normal(0, 1.5, 600)
    return features, (logits > 0).astype(np.int64)


@pytest.fixture(scope="module")
def queries() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, grades 0 to 2, sizes."""
    rng = np.random.default_rng(1)
    sizes = rng.integers(4, 12, 80)
    features = rng.normal(size=(sizes.sum(), 3))
    grades = np.digitize(features[:, 0] + 0.5 * rng.normal(size=len(features)), (0.5, 1.5))
    return features, grades, sizes


def fit_lightgbm(features: np.ndarray, target: np.ndarray, objective, rounds: int = 30, **params) -> np.ndarray:
    data = lightgbm.Dataset(features, target)
    return lightgbm.train({**LIGHTGBM, "objective": objective, **params}, data, rounds).predict(features)


def fit_xgboost(features: np.ndarray, target: np.ndarray, objective, rounds: int = 30, **params) -> np.ndarray:
    data = xgboost.DMatrix(features, target)
    return xgboost.train({**XGBOOST, **params}, data, rounds, obj=objective).predict(data, output_margin=True)


FITS = {"lightgbm": (fit_lightgbm, boosting.lightgbm_objective), "xgboost": (fit_xgboost, boosting.xgboost_objective)}


# --- the numbers ------------------------------------------------------------------------------------------------------------


@given(
    st.data(),
    st.sampled_from(RANKINGS + LABELS),
    st.sampled_from(("positive", "negative")),
    st.floats(0.1, 10),
    st.sampled_from(("secant", "constant")),
)
def test_gradient_is_that_of_the_module(data, task, update, epsilon, hessian):
    n = data.draw(st.integers(1, 30))
    values = data.draw(st.lists(st.integers(-6, 6), min_size=n, max_size=n))
    target = np.array(data.draw(st.lists(st.integers(0, 1), min_size=n, max_size=n)))
    preds = np.array(values) / 2
    scores = torch.tensor(preds, requires_grad=True)
    tl.DirectLoss(task, epsilon=epsilon, update=update)(scores, torch.tensor(target)).backward()
    objective = boosting.lightgbm_objective(task, epsilon=epsilon, update=update, hessian=hessian)
    gradient, curvature = objective(target, preds)
    np.testing.assert_array_equal(gradient, n * scores.grad.numpy())
    assert gradient.dtype == curvature.dtype == np.float64
    assert (curvature > 0).all()


def test_secant_moves_a_lone_sample_by_epsilon_and_a_leaf_by_the_share_that_agrees():
    target, preds = np.array([1, 0, 0, 1, 0]), np.array([0.0, 0.2, -0.1, 0.3, 0.1])
    gradient, hessian = boosting.lightgbm_objective("average_precision", epsilon=0.5)(target, preds)
    moving = np.abs(gradient) > boosting.FLOOR * np.abs(gradient).mean()
    assert moving.any()
    np.testing.assert_allclose(np.abs(gradient / hessian)[moving], 0.5)
    np.testing.assert_allclose(
        -gradient[moving].sum() / hessian[moving].sum(), -0.5 * gradient[moving].sum() / np.abs(gradient[moving]).sum()
    )


def test_constant_is_the_mean_secant_of_the_samples_that_move():
    target, preds = np.array([1, 0, 0, 1, 0]), np.array([0.0, 0.2, -9.0, 9.0, 0.1])
    gradient, hessian = boosting.lightgbm_objective("f_score", epsilon=2.0, hessian="constant")(target, preds)
    assert 0 < np.count_nonzero(gradient) < 5
    np.testing.assert_allclose(hessian, np.abs(gradient[gradient != 0]).mean() / 2)


@pytest.mark.parametrize("hessian", ["secant", "constant"])
@pytest.mark.parametrize("task", RANKINGS + LABELS)
def test_epsilon_is_a_unit_of_the_scores(task, hessian):
    rng = np.random.default_rng(3)
    target, preds = rng.integers(0, 2, 40), rng.normal(size=40)
    gradient, curvature = boosting.lightgbm_objective(task, hessian=hessian)(target, preds)
    scaled = boosting.lightgbm_objective(task, hessian=hessian, epsilon=4.0)(target, 4 * preds)
    np.testing.assert_allclose(scaled[0], gradient / 4, rtol=1e-12)
    np.testing.assert_allclose(scaled[1], curvature / (16 if gradient.any() else 1), rtol=1e-12)
    # So the steps, and from a constant start all scores, are four times as large, and rank the same.


def test_balanced_gives_the_classes_one_mass_and_the_steps_of_even_logistic_odds():
    target = np.array([1, 0, 0, 0, 1, 0, 0, 0])
    gradient, hessian = boosting.lightgbm_objective("average_precision", hessian="balanced")(target, np.zeros(8))
    np.testing.assert_allclose(hessian[target == 1].sum(), hessian[target == 0].sum())
    np.testing.assert_allclose(hessian.sum(), 8)
    np.testing.assert_allclose(-gradient / hessian, np.where(target, 2.0, -2.0))  # as (y - 1/2) / (1/4)


def test_balanced_is_even_over_queries_and_leaves_out_those_of_one_class():
    target, sizes = np.array([1, 0, 0, 0, 0, 1, 0]), np.array([3, 2, 2])
    objective = boosting.lightgbm_objective("average_precision", hessian="balanced")
    gradient, hessian = objective(target, np.zeros(7), None, sizes)
    np.testing.assert_allclose([hessian[:3].sum(), hessian[5:].sum()], 3.5)
    np.testing.assert_array_equal(gradient[3:5], 0)
    np.testing.assert_array_equal(hessian[3:5], boosting.FLOOR)
    assert (objective(np.zeros(4), np.zeros(4))[1] == 1).all()


def test_leaf_values_follow_from_gradient_and_hessian(table):
    features, target = table
    objective = boosting.lightgbm_objective("average_precision")
    booster = lightgbm.train({**LIGHTGBM, "objective": objective, "learning_rate": 1.0}, lightgbm.Dataset(features, target), 1)
    gradient, hessian = objective(target, np.zeros(len(target)))
    leaves, values = booster.predict(features, pred_leaf=True).ravel(), booster.predict(features)
    for leaf in np.unique(leaves):
        inside = leaves == leaf
        np.testing.assert_allclose(values[inside], -gradient[inside].sum() / hessian[inside].sum(), rtol=1e-5)
        assert np.abs(values[inside]).max() <= 1 + 1e-6  # epsilon


# --- training ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", FITS)
@pytest.mark.parametrize("hessian", boosting.HESSIANS)
def test_constant_start_trains_and_row_order_does_not_matter(library, hessian, table):
    features, target = table
    fit, make = FITS[library]
    scores = fit(features, target, make("average_precision", hessian=hessian))
    assert average_precision_score(target, scores) > average_precision_score(target, features[:, 0]) + 0.02
    order = np.random.default_rng(2).permutation(len(target))
    shuffled = np.empty_like(scores)
    shuffled[order] = fit(features[order], target[order], make("average_precision", hessian=hessian))
    np.testing.assert_allclose(shuffled, scores, rtol=0, atol=1e-5)
    sorted_by_label = np.argsort(target, kind="stable")
    assert average_precision_score(
        target[sorted_by_label],
        fit(features[sorted_by_label], target[sorted_by_label], make("average_precision", hessian=hessian)),
    ) == pytest.approx(average_precision_score(target, scores), abs=1e-6)


@pytest.mark.parametrize("library", FITS)
def test_threads_agree(library, table):
    features, target = table
    fit, make = FITS[library]
    name = {"lightgbm": "num_threads", "xgboost": "nthread"}[library]
    one, two = (fit(features, target, make("ndcg"), **{name: threads}) for threads in (1, 2))
    np.testing.assert_allclose(one, two, rtol=0, atol=1e-6)


@pytest.mark.parametrize("task", ["roc_auc", "ndcg", "precision_at_recall", "partial_auc"])
def test_other_rankings_train(task, table):
    features, target = table
    before = boosting.lightgbm_metric(task)(target, features[:, 0])[1]
    after = boosting.lightgbm_metric(task)(target, fit_lightgbm(features, target, boosting.lightgbm_objective(task)))[1]
    assert after > before


@pytest.mark.parametrize("library", FITS)
def test_labels_train_from_nothing_by_the_negative_update(library, table):
    features, target = table
    fit, make = FITS[library]
    objective = make("f_score", update="negative", hessian="constant")
    assert f1_score(target, fit(features, target, objective, rounds=100) > 0) > 0.85


# --- calling forms ----------------------------------------------------------------------------------------------------------


def test_lightgbm_forms_agree(table):
    features, target = table
    objective, metric = boosting.lightgbm_objective("average_precision"), boosting.lightgbm_metric("average_precision")
    data = lightgbm.Dataset(features, target)
    record: dict = {}
    native = lightgbm.train(
        {**LIGHTGBM, "objective": objective},
        data,
        10,
        valid_sets=[data],
        feval=metric,
        callbacks=[lightgbm.record_evaluation(record)],
    )
    settings = {key: value for key, value in LIGHTGBM.items() if key != "num_threads"}
    for kind in (lightgbm.LGBMRegressor, lightgbm.LGBMClassifier):
        model = kind(n_estimators=10, objective=objective, n_jobs=1, **settings).fit(features, target)
        np.testing.assert_allclose(model.predict(features, raw_score=True), native.predict(features), atol=1e-12)
    values = record["training"]["average_precision"]
    assert values[-1] == pytest.approx(average_precision_score(target, native.predict(features)))
    assert metric(target, native.predict(features)) == ("average_precision", values[-1], True)


def test_lightgbm_queries(queries):
    features, grades, sizes = queries
    ids = np.repeat(np.arange(len(sizes)), sizes)
    objective, metric = boosting.lightgbm_objective("graded_ndcg"), boosting.lightgbm_metric(tl.GradedNDCG(at=5))
    data = lightgbm.Dataset(features, grades, group=sizes)
    native = lightgbm.train({**LIGHTGBM, "objective": objective}, data, 20)
    settings = {key: value for key, value in LIGHTGBM.items() if key != "num_threads"}
    ranker = lightgbm.LGBMRanker(n_estimators=20, objective=objective, n_jobs=1, **settings)
    ranker.fit(features, grades, group=sizes)
    scores = native.predict(features)
    np.testing.assert_allclose(ranker.predict(features), scores, atol=1e-12)
    expected = tl.metrics.graded_ndcg_score(scores, grades, groups=ids, at=5)
    assert metric(scores, data)[1] == pytest.approx(float(expected), abs=1e-12)
    assert metric(grades, scores, None, sizes)[1] == pytest.approx(float(expected), abs=1e-12)
    assert expected > metric(grades, np.zeros(len(grades)), None, sizes)[1] + 0.1
    # The queries count, not only the rows.
    assert np.abs(objective(scores, data)[0] - objective(scores, lightgbm.Dataset(features, grades).construct())[0]).max() > 0.1


def test_xgboost_forms_agree(table):
    features, target = table
    objective, metric = boosting.xgboost_objective("average_precision"), boosting.xgboost_metric("average_precision")
    data = xgboost.DMatrix(features, target)
    record: dict = {}
    native = xgboost.train(
        XGBOOST, data, 10, obj=objective, evals=[(data, "fit")], custom_metric=metric, evals_result=record, verbose_eval=False
    )
    scores = native.predict(data, output_margin=True)
    settings = {key: value for key, value in XGBOOST.items() if key not in ("nthread", "disable_default_eval_metric")}
    model = xgboost.XGBRegressor(n_estimators=10, objective=objective, eval_metric=metric, n_jobs=1, **settings)
    model.fit(features, target, eval_set=[(features, target)], verbose=False)
    np.testing.assert_allclose(model.predict(features), scores, atol=1e-6)
    values = record["fit"]["loss_of_average_precision"]
    assert values[-1] == pytest.approx(1 - average_precision_score(target, scores), abs=1e-5)  # XGBoost keeps five digits
    assert model.evals_result()["validation_0"]["loss_of_average_precision"] == pytest.approx(values)


def test_xgboost_early_stopping_takes_the_best_round(table):
    features, target = table
    fit, held_out = (xgboost.DMatrix(features[rows], target[rows]) for rows in (slice(0, 300), slice(300, None)))
    record: dict = {}
    model = xgboost.train(
        {**XGBOOST, "learning_rate": 0.5},
        fit,
        200,
        obj=boosting.xgboost_objective("ndcg"),
        evals=[(held_out, "held_out")],
        custom_metric=boosting.xgboost_metric("ndcg"),
        early_stopping_rounds=10,
        evals_result=record,
        verbose_eval=False,
    )
    losses = record["held_out"]["loss_of_ndcg"]
    assert len(losses) < 200
    assert model.best_score == min(losses)


def test_xgboost_queries(queries):
    features, grades, sizes = queries
    data = xgboost.DMatrix(features, grades)
    data.set_group(sizes)
    objective = boosting.xgboost_objective("graded_ndcg")
    scores = np.random.default_rng(0).normal(size=len(grades))
    for ours, theirs in zip(objective(scores, data), objective(grades, scores, None, sizes), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    model = xgboost.train(XGBOOST, data, 20, obj=objective)
    _, loss = boosting.xgboost_metric("graded_ndcg")(model.predict(data), data)
    assert loss < boosting.xgboost_metric("graded_ndcg")(np.zeros(len(grades)), data)[1] - 0.05


def test_objectives_are_plain_values(table):
    objective = boosting.lightgbm_objective(tl.FScore(beta=2), epsilon=3, update="negative")
    assert pickle.loads(pickle.dumps(objective)) == objective
    assert objective.at_threshold(0.5).threshold == 0.5
    features, target = table
    results = lightgbm.cv(
        {**LIGHTGBM, "objective": boosting.lightgbm_objective("average_precision")},
        lightgbm.Dataset(features, target),
        5,
        nfold=3,
        feval=boosting.lightgbm_metric("average_precision"),
    )
    assert results["valid average_precision-mean"][-1] > 0.5


# --- two stages -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["average_precision", "f_score"])
def test_warm_up_keeps_the_first_trees(task, table):
    features, target = table
    data = lightgbm.Dataset(features, target, free_raw_data=False)
    params = {**LIGHTGBM, "objective": "binary"}
    model, used = boosting.train_lightgbm(params, data, 25, boosting.lightgbm_objective(task), warm_up=10)
    plain = lightgbm.train(params, lightgbm.Dataset(features, target), 10)
    assert model.num_trees() == 25
    first = model.predict(features, num_iteration=10, raw_score=True)
    np.testing.assert_allclose(first, plain.predict(features, raw_score=True), atol=1e-12)
    metric = boosting.lightgbm_metric(task, threshold=used.threshold)
    if task == "f_score":
        assert used.threshold == tl.thresholds.for_f_score(first, target).threshold
    else:
        assert used.threshold == 0
        assert metric(target, model.predict(features, raw_score=True))[1] > metric(target, first)[1]


@pytest.mark.parametrize("task", ["average_precision", "f_score"])
def test_warm_up_of_xgboost(task, table):
    features, target = table
    data = xgboost.DMatrix(features, target)
    params = {"objective": "binary:logistic", "nthread": 1, "max_depth": 2, "tree_method": "hist", "learning_rate": 0.1}
    model, used = boosting.train_xgboost(params, data, 40, boosting.xgboost_objective(task), warm_up=10)
    assert model.num_boosted_rounds() == 40
    first = model.predict(data, iteration_range=(0, 10), output_margin=True)
    np.testing.assert_allclose(first, xgboost.train(params, data, 10).predict(data, output_margin=True), atol=1e-5)
    metric = boosting.xgboost_metric(task, threshold=used.threshold)
    if task == "f_score":
        assert used.threshold == tl.thresholds.for_f_score(first.astype(np.float64), target).threshold
    else:
        assert metric(target, model.predict(data, output_margin=True)) < metric(target, first)


def test_early_stopping_after_a_warm_up_counts_all_rounds(table):
    features, target = table
    data = lightgbm.Dataset(features[:300], target[:300], free_raw_data=False)
    held_out = lightgbm.Dataset(features[300:], target[300:], reference=data, free_raw_data=False)
    metric = boosting.lightgbm_metric("average_precision")
    model, _ = boosting.train_lightgbm(
        {**LIGHTGBM, "objective": "binary", "learning_rate": 0.5},
        data,
        100,
        boosting.lightgbm_objective("average_precision"),
        warm_up=5,
        valid_sets=[held_out],
        feval=metric,
        callbacks=[lightgbm.early_stopping(10, verbose=False)],
    )
    assert 5 < model.best_iteration < 100
    best = metric(target[300:], model.predict(features[300:], raw_score=True))[1]
    assert model.best_score["valid_0"]["average_precision"] == pytest.approx(best)


# --- bad input --------------------------------------------------------------------------------------------------------------


def test_bad_settings():
    for make in (boosting.lightgbm_objective, boosting.xgboost_objective):
        with pytest.raises(ValueError, match="no task is named 'map'"):
            make("map")
        with pytest.raises(ValueError, match="epsilon"):
            make("ndcg", epsilon=0)
        with pytest.raises(ValueError, match="update"):
            make("ndcg", update="both")
        with pytest.raises(ValueError, match="hessian"):
            make("ndcg", hessian="exact")
        with pytest.raises(ValueError, match="balanced.*rankings.*secant"):
            make("f_score", hessian="balanced")
        with pytest.raises(ValueError, match="MultiClass has several scores"):
            make("multi_class")


def test_bad_data(table):
    features, target = table
    objective, zeros = boosting.lightgbm_objective("average_precision"), np.zeros(4)
    with pytest.raises(ValueError, match=r"shape \(4, 2\).*one model per class"):
        objective(np.zeros(4), np.zeros((4, 2)))
    with pytest.raises(ValueError, match="group sizes sum to 3, but there are 4"):
        objective(np.array([0, 1, 0, 1]), zeros, None, np.array([1, 2]))
    with pytest.raises(ValueError, match="weights"):
        objective(np.array([0, 1, 0, 1]), zeros, np.array([1.0, 2.0, 1.0, 1.0]))
    with pytest.raises(ValueError, match="0 and 1|0/1"):
        objective(np.array([-1, 1, -1, 1]), zeros)
    with pytest.raises(ValueError, match="finite|NaN|nan"):
        objective(np.array([0, 1, 0, 1]), np.array([0.0, np.nan, 0.0, 0.0]))
    with pytest.raises(TypeError, match="exchange"):
        objective(lightgbm.Dataset(features, target), np.zeros(len(target)))
    with pytest.raises(ValueError, match="weights"):
        lightgbm.LGBMClassifier(objective=objective, class_weight="balanced", verbosity=-1, n_jobs=1).fit(features, target)
    with pytest.raises(ValueError, match="free_raw_data=False"):
        boosting.train_lightgbm({"objective": "binary"}, lightgbm.Dataset(features, target), 10, objective, warm_up=5)
    with pytest.raises(ValueError, match="warm_up is 10 of 10"):
        boosting.train_xgboost({}, xgboost.DMatrix(features, target), 10, objective, warm_up=10)
    with pytest.raises(ValueError, match="warm_up"):
        boosting.train_xgboost({}, xgboost.DMatrix(features, target), 10, objective, warm_up=0)
