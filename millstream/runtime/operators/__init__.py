"""One module for each operator: the lines it writes into its chain's loop, and what it needs beside them."""
