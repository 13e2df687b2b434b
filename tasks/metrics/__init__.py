"""Metrics, computed from outcomes: first one value per query, then their mean. Needs no torch."""

from capim.tasks.metrics.metric import Metric
from capim.tasks.metrics.table import METRICS, facts_of, is_known, metrics_of, version_of

__all__ = ["METRICS", "Metric", "facts_of", "is_known", "metrics_of", "version_of"]
