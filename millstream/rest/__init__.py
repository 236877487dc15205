"""The REST server: Flink's paths and JSON over what the driver knows of its jobs, and the dashboard's own document.

It runs in a daemon thread of the driver's process (`start`, `server`), asks nothing of the workers, and holds nobody
up: what it shows is what the tasks have reported. docs/rest.md says what is served and to whom.
"""
