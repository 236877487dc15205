"""From a program to a plan: transformations → stream graph → job graph (chaining) → level plan."""
