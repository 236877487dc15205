"""What runs inside a task, and the driver's half that needs no Spark."""
