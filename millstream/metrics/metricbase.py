"""Metrics of user functions, under PyFlink's module name."""

from millstream.api.metrics import Counter, Distribution, Meter, Metric, MetricGroup

__all__ = ["Counter", "Distribution", "Meter", "Metric", "MetricGroup"]
