"""Python imports this at its start if the folder is on its path: drivers and workers alike get the planted bug."""

import os

if os.environ.get("MILLSTREAM_PLANTED"):
    from tests.chaos.planted import plant

    plant(os.environ["MILLSTREAM_PLANTED"])
