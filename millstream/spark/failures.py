"""From Spark's exceptions to Millstream's: the error a worker raised, if there is one in the text."""

from __future__ import annotations

from millstream.errors import EngineError, MillstreamError, decode
from millstream.spark.unfit import unfit

__all__ = ["translate"]


def translate(error: BaseException) -> MillstreamError:
    """The error that made Spark fail."""
    if isinstance(error, MillstreamError):
        return error
    text = _text(error)
    own = decode(text)
    if own is not None:
        return own
    host = unfit(text)
    if host is not None:
        return host
    condition = getattr(error, "getCondition", lambda: None)()
    first = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    return EngineError(
        f"Spark failed the job: {first[:500]}",
        condition=condition,
        details="\n".join(text.splitlines()[:40]),
        hint="the details are Spark's own; set spark.log.level to WARN to see its log",
    )


def _text(error: BaseException) -> str:
    """Everything Spark says, including what is only in the Java exception's causes."""
    parts = [str(error)]
    java = getattr(error, "java_exception", None)
    seen = 0
    while java is not None and seen < 10:
        parts.append(str(java.getMessage()))
        java = java.getCause()
        seen += 1
    origin = getattr(error, "_origin", None)
    while origin is not None and seen < 10:
        parts.append(str(origin.getMessage()))
        origin = origin.getCause()
        seen += 1
    return "\n".join(parts)
