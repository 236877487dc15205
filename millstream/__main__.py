"""`python -m millstream` is the command `millstream`."""

from millstream.cli import main

if __name__ == "__main__":
    main()
