"""What scikit-learn's users do by habit: weights, frames, processes, verbose, score and scorers."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import make_classification, make_multilabel_classification
from sklearn.ensemble import BaggingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, average_precision_score, f1_score, make_scorer
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import taskloss as tl
from taskloss.estimators import SklearnMetric, TaskLossClassifier, TaskLossRanker, scorer
from taskloss.estimators.frames import FrameEncoder
from taskloss.estimators.weights import count_rows

SMALL = {"members": 2, "max_iter": 40, "random_state": 0}


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, np.ndarray]:
    return make_classification(300, 6, n_informative=4, n_redundant=0, weights=[0.8], class_sep=1.0, random_state=0)


@pytest.fixture(scope="module")
def three() -> tuple[np.ndarray, np.ndarray]:
    return make_classification(300, 6, n_informative=4, n_redundant=0, n_classes=3, n_clusters_per_class=1, random_state=0)


class TestWeights:
    @pytest.mark.parametrize(
        "settings",
        [{"method": "cross_entropy"}, {"metric": "multi_class"}, {"metric": "multi_class", "method": "hinge"}],
        ids=str,
    )
    @pytest.mark.parametrize("classes", [2, 3])
    def test_losses_that_are_means_take_weights(self, data, three, settings, classes):
        """A class whose weight is tiny is predicted far less, by sample weights and by class weights alike."""
        X, y = data if classes == 2 else three
        model = TaskLossClassifier(**settings, threshold="probability", **SMALL)
        plain = (model.fit(X, y).predict(X) == 1).mean()
        light = np.where(y == 1, 0.01, 1.0)
        by_sample = model.fit(X, y, sample_weight=light).predict_proba(X)
        assert (by_sample.argmax(1) == 1).mean() < 0.5 * plain  # Trees still find regions that hold no other class.
        model.set_params(class_weight={0: 1.0, 1: 0.01, **({2: 1.0} if classes == 3 else {})})
        np.testing.assert_array_equal(model.fit(X, y).predict_proba(X), by_sample)
        np.testing.assert_array_equal(model.fit(X, y, sample_weight=np.full(len(y), 3.0)).predict_proba(X), by_sample)

    def test_balanced_class_weights_find_more_of_the_rare_class(self, data):
        X, y = data
        model = TaskLossClassifier(method="cross_entropy", threshold="probability", **SMALL)
        plain = model.fit(X, y).predict(X).sum()
        assert model.set_params(class_weight="balanced").fit(X, y).predict(X).sum() > plain

    @pytest.mark.parametrize("metric", ["average_precision", "f_score", "roc_auc"])
    def test_metrics_of_the_whole_list_explain_why_not(self, data, metric):
        X, y = data
        model = TaskLossClassifier(metric, method=("cross_entropy", "hinge"), **SMALL)
        with pytest.raises(ValueError, match="sample_weight has no place in .*whole numbers, which count a row several times"):
            model.fit(X, y, sample_weight=np.linspace(1.0, 2.0, len(y)))
        with pytest.raises(ValueError, match="class_weight has no place in .*MultiClass\\(cost=...\\)"):
            model.set_params(class_weight="balanced").fit(X, y)
        with pytest.raises(ValueError, match="class_weight has no place"):
            model.set_params(class_weight={0: 1, 1: 2}).fit(X, y)

    def test_whole_numbers_count_rows(self, data):
        X, y = data
        model = TaskLossClassifier(**SMALL)
        expected = model.fit(X, y).decision_function(X)
        for same in (np.ones(len(y)), np.full(len(y), 0.3)):
            np.testing.assert_array_equal(model.fit(X, y, sample_weight=same).decision_function(X), expected)
        kept = np.arange(len(y)) % 3 > 0
        expected = model.fit(X[kept], y[kept]).decision_function(X)
        np.testing.assert_array_equal(model.fit(X, y, sample_weight=kept).decision_function(X), expected)
        twice = model.fit(X, y, sample_weight=1 + kept)
        assert len(twice.history_) == 10
        assert average_precision_score(y, twice.decision_function(X)) > 0.5
        np.testing.assert_array_equal(count_rows(np.array([0.5, 1.0, 0.0, 1.5]), tl.ROCAUC()), [1, 2, 0, 3])
        np.testing.assert_array_equal(count_rows(np.array([4.0, 6.0]), tl.ROCAUC()), [2, 3])
        with pytest.raises(ValueError, match="counts 2 rows 1,000,001 times in all"):
            count_rows(np.array([1.0, 1e6]), tl.ROCAUC())

    def test_copies_of_a_row_are_never_split(self, data, monkeypatch):
        X, y = data
        seen = []
        original = TaskLossClassifier._fit_ensemble
        monkeypatch.setattr(TaskLossClassifier, "_fit_ensemble", lambda self, *a: seen.append(a[2]) or original(self, *a))
        TaskLossClassifier(**SMALL).fit(X, y, sample_weight=1 + np.arange(len(y)) % 2)
        assert len(seen[0].table) == len(y) + len(y) // 2
        np.testing.assert_array_equal(np.bincount(seen[0].units), 1 + np.arange(len(y)) % 2)

    def test_bagging_works(self, data):
        X, y = data
        bag = BaggingClassifier(TaskLossClassifier(members=1, max_iter=20), n_estimators=2, random_state=0).fit(X, y)
        assert average_precision_score(y, bag.predict_proba(X)[:, 1]) > 0.5

    def test_score_takes_weights_where_they_have_a_place(self, data):
        X, y = data
        weights = np.random.default_rng(0).integers(0, 4, len(y))
        model = TaskLossClassifier(**SMALL).fit(X, y)
        expected = average_precision_score(y, model.decision_function(X), sample_weight=weights)
        assert model.score(X, y, sample_weight=weights) == pytest.approx(expected)
        model = TaskLossClassifier("multi_class", **SMALL).fit(X, y)
        expected = accuracy_score(y, model.predict(X), sample_weight=weights + 0.3)
        assert model.score(X, y, sample_weight=weights + 0.3) == pytest.approx(expected)

    def test_queries_have_weights(self):
        rng = np.random.default_rng(0)
        X, query = rng.normal(size=(400, 3)), np.repeat(np.arange(40), 10)
        y = np.clip(np.round(np.where(query < 20, X[:, 0], X[:, 1])), 0, 2)
        first = np.where(query < 20, 1.0, 0.01)
        model = TaskLossRanker(method="direct", **SMALL)
        plain = model.fit(X, y, groups=query).score(X, y, groups=query, sample_weight=first)
        weighted = model.fit(X, y, groups=query, sample_weight=first).score(X, y, groups=query, sample_weight=first)
        assert weighted > plain
        alone = query < 20
        assert weighted == pytest.approx(model.score(X[alone], y[alone], groups=query[alone]), abs=0.01)
        kept = model.fit(X, y, groups=query, sample_weight=alone).predict(X)
        np.testing.assert_array_equal(model.fit(X[alone], y[alone], groups=query[alone]).predict(X), kept)
        model.set_params(method="cross_entropy").fit(X, y, groups=query, sample_weight=first)
        with pytest.raises(ValueError, match="differs within query 0"):
            model.fit(X, y, groups=query, sample_weight=np.linspace(1, 2, 400))
        with pytest.raises(ValueError, match="of one list"):
            model.fit(X, y, sample_weight=first)

    @pytest.mark.parametrize(
        ("weights", "message"),
        [(np.zeros(300), "all sample weights are 0|weights.*zero"), (np.full(300, -1.0), "[Nn]egative"), (np.ones(7), "shape")],
    )
    def test_bad_weights(self, data, weights, message):
        X, y = data
        with pytest.raises(ValueError, match=message):
            TaskLossClassifier(method="cross_entropy", **SMALL).fit(X, y, sample_weight=weights)


class TestFrames:
    @pytest.fixture
    def frame(self) -> tuple[pd.DataFrame, np.ndarray]:
        rng = np.random.default_rng(0)
        n = 400
        frame = pd.DataFrame(
            {
                "amount": rng.normal(size=n),
                "branch": rng.choice(["north", "south", "east"], n),
                "code": pd.Categorical(rng.choice([10, 20, 30], n)),
                "day": pd.Timestamp("2024-01-01", tz="UTC") + pd.to_timedelta(rng.integers(0, 365, n), unit="D"),
                "price": pd.Series([f"{value:,.2f}" for value in rng.uniform(0, 5000, n)], dtype="string"),
                "flag": rng.random(n) < 0.5,
            }
        )
        late = frame["day"].dt.day_of_year > 200
        y = (frame["branch"] == "north") & (frame["code"] == 10) | late & (frame["amount"] > 1.0)
        frame.loc[::17, "branch"] = None
        frame.loc[::23, "amount"] = np.nan
        return frame, y.to_numpy().astype(int)

    def test_text_categories_and_dates_are_features(self, frame, tmp_path):
        X, y = frame
        model = TaskLossClassifier(**{**SMALL, "max_iter": 100}).fit(X[:300], y[:300])
        assert model.score(X[300:], y[300:]) > 0.8
        assert model.n_features_in_ == 6
        assert model.feature_names_in_.tolist() == list(X.columns)
        again = TaskLossClassifier.load(model.save(tmp_path / "model.safetensors"))
        np.testing.assert_array_equal(again.decision_function(X), model.decision_function(X))
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), model.predict(X))
        new = X.assign(branch="never seen", code=pd.Categorical([40] * len(X)))
        with pytest.warns(UserWarning, match="none of the known categories") as caught:
            assert np.isfinite(model.predict_proba(new)).all()
        assert [warning.filename for warning in caught] == [__file__] * 2

    def test_daily_dates_and_durations_are_features(self):
        """Daily dates count the rows, and are nevertheless no identifiers; written as text they are the same."""
        days = pd.Series(pd.date_range("2024-01-01", periods=40, freq="D"))
        X = pd.DataFrame({"day": days, "there": days.dt.tz_localize("UTC"), "took": pd.to_timedelta(range(40), unit="D")})
        expected = np.column_stack([19_723 + np.arange(40), 19_723 + np.arange(40), np.arange(40)])
        encoder = FrameEncoder.fit(X)
        np.testing.assert_array_equal(encoder.encode(X), expected)
        text = X.assign(day=X["day"].astype(str), there=X["there"].astype(str))
        np.testing.assert_array_equal(encoder.encode(text), expected)
        from_text = FrameEncoder.fit(text)
        np.testing.assert_array_equal(from_text.encode(X), expected)

    def test_booleans_as_text_and_numbers_as_categories(self):
        flags = np.arange(40) % 3 == 0
        X = pd.DataFrame({"flag": flags, "code": pd.Categorical(np.arange(40) % 2)})
        text = X.assign(flag=np.where(flags, "TRUE", "false"), code=pd.Categorical(np.arange(40) % 2 * 1.0))
        for fitted in (X, text):
            encoder = FrameEncoder.fit(fitted)
            np.testing.assert_array_equal(encoder.encode(X), encoder.encode(text))
            assert encoder.encode(X).any(0).all()

    def test_in_a_search_and_a_pipeline(self, frame):
        X, y = frame
        search = GridSearchCV(make_pipeline(TaskLossClassifier(**SMALL)), {"tasklossclassifier__epsilon": [0.5, 2.0]}, cv=2)
        assert search.fit(X, y).best_score_ > 0.3

    def test_a_ranker_takes_them_too(self, frame):
        X, y = frame
        query = np.arange(len(X)) % 20
        model = TaskLossRanker(**{**SMALL, "max_iter": 100}).fit(X, y, groups=query)
        assert model.score(X, y, groups=query) > 0.8

    def test_numbers_in_columns_of_objects_stay_numbers(self, frame):
        X, y = frame
        numbers = X[["amount", "flag"]]
        expected = TaskLossClassifier(**SMALL).fit(numbers, y).decision_function(numbers)
        objects = numbers.astype(object)
        np.testing.assert_array_equal(TaskLossClassifier(**SMALL).fit(objects, y).decision_function(objects), expected)

    def test_identifiers_are_left_out_with_a_warning(self, frame):
        X, y = frame
        X = X.assign(name=[f"customer {number}" for number in range(len(X))], same="x")
        with pytest.warns(UserWarning, match="columns 'name' of X are left out") as caught:
            model = TaskLossClassifier(**SMALL).fit(X, y)
        assert [warning.filename for warning in caught] == [__file__]
        np.testing.assert_array_equal(model.predict(X.assign(name="other")), model.predict(X))

    def test_numbers_that_look_like_identifiers_stay_features(self, frame):
        _, y = frame
        X = pd.DataFrame(
            {"number": np.random.default_rng(0).permutation(len(y)), "name": [f"customer {n}" for n in range(len(y))]}
        )
        with pytest.warns(UserWarning, match="columns 'name' of X are left out"):
            model = TaskLossClassifier(**SMALL).fit(X, y)
        assert model.frame_encoder_.numbers == ("number",)
        assert "'name' is left out" in " ".join(model.frame_encoder_.encoder.notices)

    def test_other_frames_are_refused(self, frame):
        X, y = frame
        model = TaskLossClassifier(members=1, max_iter=2, random_state=0).fit(X, y)
        with pytest.raises(ValueError, match="feature names"):
            model.predict(X[X.columns[::-1]])
        with pytest.raises(ValueError, match="expected such a frame, got ndarray"):
            model.predict(np.zeros((3, 6)))
        mixed = X.assign(price=["unknown", *map(str, range(1, len(X)))])
        with pytest.raises(ValueError, match="column 'price' of X holds numbers and other text.*to_numeric"):
            model.fit(mixed, y)
        with pytest.raises(ValueError, match="a name of its own"):
            model.fit(X.set_axis(range(6), axis=1), y)


class TestProcesses:
    def test_the_result_does_not_depend_on_the_number_of_processes(self, data):
        X, y = data
        steps: list[tuple[int, int]] = []
        settings = {"metric": "f_score", "members": 3, "max_iter": 20, "random_state": 0, "dropout": 0.2}
        here = TaskLossClassifier(**settings, callback=lambda member, progress: steps.append((member, progress.iteration)))
        expected = here.fit(X, y).decision_function(X)
        told = steps.copy()
        steps.clear()
        np.testing.assert_array_equal(here.set_params(n_jobs=2).fit(X, y).decision_function(X), expected)
        assert steps == told
        assert [step for member, step in told if member == 1] == list(range(1, len(here.history_[1].losses) + 1))


def test_verbose_prints_lines(data, capsys):
    X, y = data
    TaskLossClassifier(method="direct", members=2, max_iter=60, random_state=0).fit(X, y)
    assert capsys.readouterr().out == ""
    told = []
    TaskLossClassifier(
        method="direct", members=2, max_iter=60, random_state=0, verbose=1, callback=lambda *step: told.append(step)
    ).fit(X, y)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert lines[1].startswith("member 2 of 2, step 1 of at most 60: loss")
    assert "held-out average precision" in lines[1]
    assert len(told) > 50
    TaskLossClassifier(method="direct", members=2, max_iter=60, random_state=0, verbose=2).fit(X, y)
    assert len(capsys.readouterr().out.splitlines()) == 4
    steps = {"hinge": 50, "lightgbm": 150, "random_forest": 100}
    TaskLossClassifier(method=tuple(steps), members=2, max_iter=50, random_state=0, verbose=1).fit(X, y)
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(": loss")[0] for line in lines] == [
        f"{method}, member {number} of 2, step 1 of at most {most}" for method, most in steps.items() for number in (1, 2)
    ]


class TestScore:
    def test_score_is_the_metric_that_was_trained(self, data, three):
        X, y = data
        model = TaskLossClassifier(**SMALL).fit(X, y)
        assert model.score(X, y) == pytest.approx(average_precision_score(y, model.decision_function(X)))
        model = TaskLossClassifier(tl.FScore(), **SMALL).fit(X, y)
        assert model.score(X, y) == pytest.approx(f1_score(y, model.predict(X)))
        model = TaskLossClassifier("multi_class", **SMALL).fit(X, y)
        assert model.score(X, y) == pytest.approx(accuracy_score(y, model.predict(X)))
        X, y = three
        names = np.array(["ash", "birch", "cedar"])[y]
        model = TaskLossClassifier("f_score", **SMALL).fit(X, names)
        assert model.score(X, names) == pytest.approx(f1_score(names, model.predict(X), average="macro"))
        model = TaskLossClassifier(**SMALL).fit(X, names)
        assert model.score(X, names) == pytest.approx(average_precision_score(names, model.decision_function(X)))
        model = TaskLossClassifier(tl.MultiClass(cost=[[0, 1, 2], [1, 0, 1], [5, 1, 0]]), **SMALL).fit(X, names)
        cost = np.array([[0, 1, 2], [1, 0, 1], [5, 1, 0]])[y, np.searchsorted(model.classes_, model.predict(X))]
        assert model.score(X, names) == pytest.approx(1 - cost.mean())
        with pytest.raises(ValueError, match="'oak', which the estimator has not seen"):
            model.score(X, np.where(y == 0, "oak", names))

    def test_labels_and_words(self, data):
        X, Y = make_multilabel_classification(300, 8, n_classes=3, random_state=0)
        model = TaskLossClassifier(**SMALL).fit(X, Y)
        assert model.score(X, Y) == pytest.approx(average_precision_score(Y, model.decision_function(X)))
        X, y = data
        words = np.where(y == 1, "fraud", "ok")
        model = TaskLossClassifier(pos_label="fraud", **SMALL).fit(X, words)
        assert model.score(X, words) == pytest.approx(average_precision_score(y, -model.decision_function(X)))
        top = TaskLossClassifier(tl.TopKError(1), **SMALL).fit(X, words)
        assert top.score(X, words) == pytest.approx(accuracy_score(words, top.predict(X)))


class TestScorers:
    def test_scorers_equal_scikit_learns(self, data, three):
        X, y = data
        forest = RandomForestClassifier(10, random_state=0)
        for model in (LogisticRegression(), forest):
            for metric, name in (("average_precision", "average_precision"), ("roc_auc", "roc_auc"), (tl.FScore(), "f1")):
                np.testing.assert_allclose(
                    cross_val_score(model, X, y, scoring=scorer(metric), cv=3), cross_val_score(model, X, y, scoring=name, cv=3)
                )
        X, y = three
        np.testing.assert_allclose(
            cross_val_score(forest, X, y, scoring=scorer("roc_auc"), cv=3),
            cross_val_score(forest, X, y, scoring="roc_auc_ovr", cv=3),
        )
        X, Y = make_multilabel_classification(200, 8, n_classes=3, allow_unlabeled=False, random_state=0)
        forest.fit(X[:100], Y[:100])
        expected = average_precision_score(Y[100:], np.column_stack([each[:, 1] for each in forest.predict_proba(X[100:])]))
        assert scorer("average_precision")(forest, X[100:], Y[100:]) == pytest.approx(expected)

    def test_words(self, data):
        X, y = data
        words = np.where(y == 1, "fraud", "ok")
        expected = cross_val_score(LogisticRegression(), X, y, scoring="average_precision", cv=3)
        np.testing.assert_allclose(
            cross_val_score(LogisticRegression(), X, words, scoring=scorer("average_precision", pos_label="fraud"), cv=3),
            expected,
        )
        with pytest.raises(ValueError, match="the classes are 'fraud', 'ok'; pass pos_label="):
            scorer("average_precision")(LogisticRegression().fit(X, words), X, words)
        search = GridSearchCV(
            make_pipeline(StandardScaler(), TaskLossClassifier(pos_label="fraud", **SMALL)),
            {"tasklossclassifier__epsilon": [1.0]},
            scoring=scorer("average_precision"),
            cv=2,
        ).fit(X, words)
        own = average_precision_score(y, -search.decision_function(X))
        assert scorer("average_precision")(search, X, words) == pytest.approx(own)

    def test_metrics_in_make_scorer(self, data):
        X, y = data
        ranked = make_scorer(SklearnMetric("average_precision"), response_method=("decision_function", "predict_proba"))
        decided = make_scorer(SklearnMetric(tl.FScore()), response_method="predict")
        for ours, name in ((ranked, "average_precision"), (decided, "f1")):
            np.testing.assert_allclose(
                cross_val_score(LogisticRegression(), X, y, scoring=ours, cv=3),
                cross_val_score(LogisticRegression(), X, y, scoring=name, cv=3),
            )
        words = np.where(y == 1, "fraud", "ok")
        ours = make_scorer(SklearnMetric("average_precision"), response_method="decision_function", pos_label="fraud")
        model = LogisticRegression().fit(X, words)
        assert ours(model, X, words) == pytest.approx(average_precision_score(y, -model.decision_function(X)))
        weights = np.random.default_rng(0).integers(0, 3, len(y))
        scores = LogisticRegression().fit(X, y).decision_function(X)
        assert SklearnMetric("average_precision")(y, scores, sample_weight=weights) == pytest.approx(
            average_precision_score(y, scores, sample_weight=weights)
        )
        with pytest.raises(ValueError, match="judges decisions, and y_score holds scores"):
            SklearnMetric("f_score")(y, scores)
        with pytest.raises(ValueError, match="pass pos_label="):
            SklearnMetric("average_precision")(words, scores)
        with pytest.raises(ValueError, match="use taskloss.estimators.scorer"):
            SklearnMetric("multi_class")(y, scores)

    def test_scorers_can_be_sent_to_processes(self, data):
        X, y = data
        again = pickle.loads(pickle.dumps(scorer(tl.FScore(2.0), pos_label=1)))
        assert again == scorer(tl.FScore(2.0), pos_label=1)
        assert "f_score" in repr(make_scorer(SklearnMetric("f_score")))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert again(LogisticRegression().fit(X, y), X, y) > 0.3
