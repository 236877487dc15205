"""PyFlink's programs with no import changed: `pyflink.*` served by Millstream.

`python -m millstream.pyflink job.py` and `millstream run --pyflink job.py` install a finder in front of all others;
`import pyflink.datastream` then gives a module with PyFlink's names and Millstream's classes. A name that Millstream
does not have is there too, and says so when it is used, while the program is being built.

Functions are pickled by the name of their class's own module, which is Millstream's, so workers need none of this for
them. Workers that import `pyflink` themselves (inside a function, or in a module shipped with the job) find it by the
environment variable `MILLSTREAM_PYFLINK`, which they inherit.
"""

from __future__ import annotations

from millstream.pyflink.hook import VARIABLE, install, is_installed, uninstall

__all__ = ["VARIABLE", "install", "is_installed", "uninstall"]
