"""The checkpointing machinery under a seeded scheduler and a simulated disk, without a JVM."""
