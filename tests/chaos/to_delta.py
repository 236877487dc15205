"""The checker job with its lines in a table of Delta."""

from tests.chaos.outside import main

if __name__ == "__main__":
    main("delta")
