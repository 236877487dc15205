"""The checker job with its lines in files that are compacted."""

from tests.chaos.outside import main

if __name__ == "__main__":
    main("compact")
