"""One process per subtask. Spark hands a partition to any Python process that is idle; the daemon in this package hands
it to the process that had this partition of the query before, which has the functions open and the state at hand.

Nothing here knows what a task does, and nothing is right or wrong by it: any process can run any task.
([0054](docs/decisions/0054-one-process-per-subtask.md))"""
