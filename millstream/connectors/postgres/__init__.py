"""PostgreSQL: an exactly-once sink."""
