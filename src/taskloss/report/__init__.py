"""The report of a comparison: records, statistics, charts and one HTML page; nothing here trains.

It may import ``taskloss._storage``, numpy, scipy and jinja2, and nothing else of taskloss.
"""

from taskloss.report.curves import describe_classes, describe_curves, describe_thresholds, precision_at_positives, thin_curve
from taskloss.report.files import as_json, read_results, write_report
from taskloss.report.records import Bin, ClassResults, Comparison, Curves, DataCard, Feature, FeatureEffect, Run, Thresholds
from taskloss.report.rows import Row, split_rows, summary_rows
from taskloss.report.summary import CONFIDENCE, Contrast, Gain, Summary, summarize

__all__ = [
    "CONFIDENCE",
    "Bin",
    "ClassResults",
    "Comparison",
    "Contrast",
    "Curves",
    "DataCard",
    "Feature",
    "FeatureEffect",
    "Gain",
    "Row",
    "Run",
    "Summary",
    "Thresholds",
    "as_json",
    "describe_classes",
    "describe_curves",
    "describe_thresholds",
    "precision_at_positives",
    "read_results",
    "split_rows",
    "summarize",
    "summary_rows",
    "thin_curve",
    "write_report",
]
