"""What a program hands to the engine: functions, windows, triggers, state descriptors, sources and sinks.

Contracts and plain data only. Nothing here runs a record, and nothing here knows how one is run."""
