"""Metrics: computed from outcomes, one value per query first, means afterwards. Needs no torch."""

from capim.tasks.metrics.metric import Metric
from capim.tasks.metrics.table import METRICS, facts_of, is_known, metrics_of, version_of

__all__ = ["METRICS", "Metric", "facts_of", "is_known", "metrics_of", "version_of"]
