"""Files: a source that reads lines, and a sink whose files appear when their epoch is complete."""
