"""Reporters: what a running job's figures are called, and where else they are shown (Flink's `metrics.reporter`)."""
