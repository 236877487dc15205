"""`python -m millstream.pyflink job.py ...` is `millstream run --pyflink job.py ...`."""

import sys

from millstream.cli import main

if __name__ == "__main__":
    main(["run", "--pyflink", *sys.argv[1:]], prog_name="python -m millstream.pyflink")
