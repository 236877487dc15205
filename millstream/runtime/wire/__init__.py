"""Records on their way: as bytes, in buffers, in rows, under keys; and what driver and tasks tell each other.

Nothing here knows of state or of operators."""
