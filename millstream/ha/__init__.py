"""High availability: of several drivers of a job one is elected to run it, and the others stand by."""
