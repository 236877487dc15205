"""Which line of the user's code a failure went through."""

from __future__ import annotations

import traceback
from pathlib import Path
from types import TracebackType

from millstream.redaction import shown

__all__ = ["user_line", "user_traceback"]


_PACKAGE = f"{next(folder for folder in Path(__file__).parents if folder.name == 'millstream')}/"


def _user_frames(below: TracebackType | None) -> list[traceback.FrameSummary]:
    frames = traceback.extract_tb(below)
    return [frame for frame in frames if not frame.filename.startswith(_PACKAGE)]


def user_line(below: TracebackType | None) -> str | None:
    """The line in the user's code that the failure went through: the deepest one in the function's own file."""
    frames = _user_frames(below)
    if not frames:
        return None
    own = [frame for frame in frames if frame.filename == frames[0].filename][-1]
    return shown(f"{own.filename}:{own.lineno} in {own.name}: {own.line}")


def user_traceback(error: BaseException, below: TracebackType | None) -> str | None:
    """The part of a traceback that is not Millstream's own."""
    frames = _user_frames(below)
    if not frames:
        return None
    lines = traceback.format_list(frames)
    return shown("".join(lines) + "".join(traceback.format_exception_only(error)))
