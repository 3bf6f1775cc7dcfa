"""A trained model on disk: a folder with the networks (safetensors) and the encoder of the table (JSON)."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from taskloss._storage import replace_file
from taskloss.cli.errors import BAD_DATA, CommandError
from taskloss.cli.metric import Metric, parse_metric
from taskloss.cli.model_files import FACTS, WEIGHTS
from taskloss.cli.training_sketch import TrainingSketch
from taskloss.estimators import TaskLossClassifier, TaskLossRanker
from taskloss.report.files import restore
from taskloss.tables import TableEncoder

FORMAT = 2


@dataclass(frozen=True)
class Facts:
    """What a model needs to know besides its networks and its encoder."""

    metric: str
    method: str
    target: str
    """The name of the target column."""
    positive: str
    """The label of the positive class; empty for queries and several classes."""
    negative: tuple[str, ...]
    """The labels of the negative class; empty for queries and several classes."""
    classes: tuple[str, ...]
    """The labels of several classes; empty for two classes and queries."""
    group: str | None
    """The name of the column of query ids; None without queries."""
    ids: tuple[str, ...]
    """Names of columns that identify the rows; predictions copy those that a file has."""
    missing: tuple[str, ...]
    """Texts that mark a missing value, besides the usual ones."""
    samples: int
    positives: int
    seed: int
    held_out: float | None
    """The metric on held-out training rows; None if there were too few rows to hold any out."""


@dataclass(frozen=True)
class Model:
    """A trained model, ready to predict."""

    estimator: Any
    encoder: TableEncoder
    facts: Facts
    sketch: TrainingSketch
    """The training rows, to notice those that are not new to the model."""

    @property
    def metric(self) -> Metric:
        """The metric that the model was trained for."""
        return parse_metric(self.facts.metric, queries=self.facts.group is not None, classes=len(self.facts.classes) or 2)

    def save(self, folder: Path) -> list[Path]:
        """Write the two files.

        The JSON holds a digest of the weights, so that files of different models are noticed, and a digest of itself, so that
        damage is noticed that would only change the predictions.
        """
        weights = self.estimator.save(folder / WEIGHTS)
        record = {
            "format": FORMAT,
            "weights": hashlib.sha256(weights.read_bytes()).hexdigest(),
            "facts": asdict(self.facts),
            "encoder": self.encoder.to_dict(),
            "training_rows": self.sketch.to_dict(),
        }
        record["digest"] = digest_of(record)
        return [weights, replace_file(folder / FACTS, (json.dumps(record, indent=1, allow_nan=False) + "\n").encode())]

    @classmethod
    def load(cls, folder: Path) -> Model:
        """Read a folder that ``taskloss train`` wrote; raise a CommandError if there is no model in it, or a damaged one."""
        try:
            content, weights = (folder / FACTS).read_bytes(), (folder / WEIGHTS).read_bytes()
        except OSError as error:
            raise CommandError(f"{folder} holds no model of taskloss train ({error.strerror})", BAD_DATA) from error
        try:
            record = json.loads(content)
            if record["format"] != FORMAT:
                raise ValueError(f"format {record['format']!r} is not {FORMAT}")
            if digest_of(record) != record["digest"]:
                raise ValueError(f"{FACTS} has been changed")
            if hashlib.sha256(weights).hexdigest() != record["weights"]:
                raise ValueError(f"{WEIGHTS} and {FACTS} do not belong together")
            facts = restore(Facts, record["facts"], "facts")
            kind = TaskLossClassifier if facts.group is None else TaskLossRanker
            encoder, sketch = TableEncoder.from_dict(record["encoder"]), TrainingSketch.from_dict(record["training_rows"])
            model = cls(kind.load(folder / WEIGHTS), encoder, facts, sketch)
            model.check()
        except (ValueError, KeyError, TypeError, AttributeError, RuntimeError, OverflowError, CommandError) as error:
            raise CommandError(f"the model in {folder} is damaged: {error}. Train it again", BAD_DATA) from error
        return model

    def check(self) -> None:
        """Raise a ValueError if the parts do not fit together, or a CommandError if the metric does not exist."""
        columns = len(self.encoder.feature_names)
        if columns != self.estimator.n_features_in_:
            raise ValueError(f"the encoder makes {columns} features, but the networks take {self.estimator.n_features_in_}")
        if self.facts.group is None:
            known = len(self.estimator.classes_)
            labels = len(self.facts.classes) if known > 2 else bool(self.facts.negative) + 1
            if labels != known or (known == 2 and self.facts.classes):
                raise ValueError(f"there are {labels} labels, but the networks know {known} classes")
        self.metric  # noqa: B018 (it raises if the metric does not exist)


def digest_of(record: dict[str, Any]) -> str:
    """Return a digest of all entries of a record but the digest itself."""
    rest = {name: value for name, value in record.items() if name != "digest"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()
