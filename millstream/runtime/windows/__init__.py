"""Window operators: those for every assigner and trigger, and the fast ones for the usual windows.

They are called with a record and give results to an outlet; generated code is none of their business."""
