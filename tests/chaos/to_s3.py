"""The checker job with its lines in files on S3."""

from tests.chaos.outside import main

if __name__ == "__main__":
    main("s3")
