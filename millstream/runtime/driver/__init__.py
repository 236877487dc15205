"""The driver's half: plans epochs, publishes checkpoints, commits sinks, answers requests, restarts.

Knows no Spark: an engine (`millstream.spark`, or `local`) runs the tasks."""
