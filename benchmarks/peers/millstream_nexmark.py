"""Millstream: one run of a query of Nexmark."""

from millstream.bench.nexmark.job import main

if __name__ == "__main__":
    main()
