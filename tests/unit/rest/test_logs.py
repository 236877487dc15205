"""The lines that are kept for who looks from afar, beside what the terminal shows."""

from __future__ import annotations

import logging
import subprocess
import sys

from millstream.rest.logs import LogLines

PROGRAM = """
import logging
from millstream.redaction import get_logger
from millstream.rest.logs import LOGS

LOGS.attach()
log = get_logger("millstream.job")
log.info("quiet")
log.warning("the job starts again")
if {configured}:
    logging.basicConfig(format="own: %(message)s")
    log.warning("told by others")
assert len(LOGS.last(10)) == 1 + {configured}
"""


def stderr_of(*, configured: bool) -> list[str]:
    code = PROGRAM.format(configured=int(configured))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stderr.splitlines()


def test_who_keeps_lines_does_not_silence_them() -> None:
    assert stderr_of(configured=False) == ["the job starts again"]
    # Where somebody listens, they are not said twice.
    assert stderr_of(configured=True) == ["the job starts again", "own: told by others"]


def test_lines_are_kept_in_their_order() -> None:
    lines, logger = LogLines(), logging.getLogger("tests.lines")
    logger.propagate = False
    logger.addHandler(lines)
    logger.addHandler(logging.NullHandler())
    logger.warning("one\ntwo")
    assert [line.rpartition(" ")[2] for line in lines.last(2)] == ["one", "two"]
