"""Window operators: those for every assigner and trigger, and the fast ones for the usual windows.

The general operator is called for each record. Of aligned windows and sessions generated code does the frequent case
itself, in their tables, and calls them for the others. All give their results to an outlet."""
