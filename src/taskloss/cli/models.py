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
from taskloss.cli.model_files import CHECKPOINT, FACTS, WEIGHTS
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
    """The metric on held-out training rows, the mean over the networks; None if there were too few rows to hold any out."""


@dataclass(frozen=True)
class Model:
    """A trained model, ready to predict."""

    estimator: Any
    encoder: TableEncoder
    facts: Facts

    @property
    def metric(self) -> Metric:
        """The metric that the model was trained for."""
        return parse_metric(self.facts.metric, queries=self.facts.group is not None, classes=len(self.facts.classes) or 2)

    def save(self, folder: Path) -> list[Path]:
        """Write the two files; the JSON holds a digest of the weights, so that files of different models are noticed."""
        weights = self.estimator.save(folder / WEIGHTS)
        digest = hashlib.sha256(weights.read_bytes()).hexdigest()
        record = {"format": FORMAT, "weights": digest, "facts": asdict(self.facts), "encoder": self.encoder.to_dict()}
        return [weights, replace_file(folder / FACTS, (json.dumps(record, indent=1, allow_nan=False) + "\n").encode())]

    @classmethod
    def load(cls, folder: Path) -> Model:
        """Read a folder that ``taskloss train`` wrote; raise a CommandError if there is no model in it, or a damaged one."""
        path = folder / FACTS
        try:
            content, weights = path.read_bytes(), (folder / WEIGHTS).read_bytes()
        except OSError as error:
            unfinished = (folder / CHECKPOINT).exists()
            advice = "; its training is not finished: run taskloss train again with --resume" if unfinished else ""
            raise CommandError(f"{folder} holds no model of taskloss train ({error.strerror}){advice}", BAD_DATA) from error
        try:
            record = json.loads(content)
            if record["format"] != FORMAT:
                raise ValueError(f"format {record['format']} is not {FORMAT}")
            if hashlib.sha256(weights).hexdigest() != record["weights"]:
                raise ValueError(f"{WEIGHTS} and {FACTS} do not belong together")
            facts = restore(Facts, record["facts"], "facts")
            kind = TaskLossClassifier if facts.group is None else TaskLossRanker
            return cls(kind.load(folder / WEIGHTS), TableEncoder.from_dict(record["encoder"]), facts)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise CommandError(f"the model in {folder} is damaged: {error}. Train it again", BAD_DATA) from error
