"""State: tables and what functions see of them, their encodings, their files, and the backends that keep them.

A table knows keys and values; which operator it belongs to is a name. Of time it knows that values expire."""
