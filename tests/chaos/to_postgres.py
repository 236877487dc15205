"""The checker job with its lines in a table of PostgreSQL."""

from tests.chaos.outside import main

if __name__ == "__main__":
    main("postgres")
