"""One unit for each operator: the lines it writes into its chain's loop, and what it does beside them."""
