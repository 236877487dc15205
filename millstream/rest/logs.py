"""The last lines that the package's loggers wrote in this process, for who looks at a job from afar."""

from __future__ import annotations

import logging
from collections import deque

from millstream.redaction import get_logger, shown

__all__ = ["LINES", "LOGS", "LogLines", "audit"]

LINES = 1000
"""How many lines are kept."""

_LONGEST = 4000

# What changes a job is noted, whatever the level of the other loggers is.
audit = get_logger("millstream.audit")
audit.setLevel(logging.INFO)


class LogLines(logging.Handler):
    """Keeps lines, as people may see them. A record may become several."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: deque[str] = deque(maxlen=LINES)
        self.setFormatter(
            logging.Formatter("%(asctime)s %(levelname)s %(name)s %(threadName)s: %(message)s")
        )

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record's lines."""
        try:
            text = shown(self.format(record))
        except Exception:  # what is to be logged is anybody's
            self.handleError(record)
            return
        self._lines.extend(line[:_LONGEST] for line in text.split("\n"))
        # Python prints warnings of loggers that nobody listens to. Who only keeps them must not silence them.
        last = logging.lastResort
        if last is not None and record.levelno >= last.level and not _others_listen(record, self):
            last.handle(record)

    def last(self, lines: int) -> list[str]:
        """The last lines, in their order."""
        kept = list(self._lines)
        return kept[max(0, len(kept) - lines) :] if lines > 0 else []

    def attach(self) -> None:
        """Listen from now on, once."""
        get_logger("millstream").addHandler(self)


def _others_listen(record: logging.LogRecord, own: logging.Handler) -> bool:
    logger: logging.Logger | None = logging.getLogger(record.name)
    while logger is not None:
        if any(handler is not own for handler in logger.handlers):
            return True
        logger = logger.parent if logger.propagate else None
    return False


LOGS = LogLines()
