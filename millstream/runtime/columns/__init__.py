"""Records as Arrow columns: what they are, how they are made records and back, how they cross to another task."""
