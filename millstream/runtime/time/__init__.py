"""Event time and the clock in a task: how watermarks are made and joined, and the timers they set off.

Nothing here knows which operator is told."""
