"""LightGBM with the direct gradient in ``compare``: the same folds and budget as LightGBM with its own objective."""

from __future__ import annotations

import numpy as np
import pytest

from taskloss.cli import boosting
from taskloss.cli.methods import Method
from taskloss.cli.metric import parse_metric
from taskloss.cli.splits import Subset
from taskloss.estimators import base
from taskloss.estimators.folds import make_splits


@pytest.mark.parametrize("queries", [False, True])
@pytest.mark.parametrize("rare", [0, 1])
def test_both_objectives_have_the_same_folds(monkeypatch, queries, rare):
    dealt = {}
    for module in (base, boosting):
        monkeypatch.setattr(module, "make_splits", lambda *arguments, of=module: dealt.setdefault(of, make_splits(*arguments)))
    rng = np.random.default_rng(0)
    features = rng.normal(size=(200, 3)).astype(np.float32)
    target = np.where(features[:, 0] > 0.8, rare, 1 - rare).astype(np.int64)
    samples = Subset(features, target, np.arange(200) // 10 if queries else None)
    metric = parse_metric("ndcg" if queries else "average_precision", queries=queries)
    for name in ("lightgbm", "direct_lightgbm"):
        Method(name, "", {"max_iter": 20}).fit(samples, samples, metric, 7, lambda _: None)
    for ours, theirs in zip(dealt[base], dealt[boosting], strict=True):
        for rows, others in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(rows, others)
