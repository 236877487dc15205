"""One subtask in one epoch: it opens its state, reads buffers, runs its chains, saves, and reports.

The same for Spark's workers, for tests and for the simulation."""
