"""How a chain becomes one Python loop: lines with a note of whose they are, exchanges, copies.

What each operator writes is in `operators`; here is only what they all use."""
