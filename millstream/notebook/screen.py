"""Where a live view is drawn: a place in the output of a notebook's cell that can be drawn over, and a button.

IPython draws; ipywidgets, if it is installed, has the button. Neither is imported before somebody asks for a view.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.errors import RuntimeUnusable

__all__ = ["NotebookScreen", "open_screen"]

_INSTALL = "pip install 'millstream[notebook]'"


class NotebookScreen:
    """A place in a notebook. `button` is None without ipywidgets."""

    def __init__(self, html: Callable[[str], Any], handle: Any, button: Any) -> None:
        self._html = html
        self._handle = handle
        self.button = button

    def draw(self, content: str) -> None:
        """Draw over what is there. Also from other threads: a notebook finds the place by its id."""
        self._handle.update(self._html(content))

    def end(self) -> None:
        """There is nothing to stop any more."""
        if self.button is not None:
            self.button.disabled = True


def open_screen(stop: Callable[[], None]) -> NotebookScreen:
    """A place in the output of the cell that runs now, with a button that stops.

    Outside of a notebook there is none:

    >>> open_screen(print)  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    millstream.errors.RuntimeUnusable: show() draws in a notebook...
    """
    try:
        from IPython import get_ipython
        from IPython.display import HTML, display
    except ImportError as error:
        msg = f"show() draws in a notebook, for which IPython cannot be imported: {error}"
        raise RuntimeUnusable(msg, hint=_INSTALL) from error
    shell: Any = get_ipython()
    if getattr(shell, "kernel", None) is None:
        msg = "show() draws in a notebook, and this program does not run in one"
        raise RuntimeUnusable(msg, hint="print(), or for record in stream.execute_and_collect()")
    button = _button(stop)
    if button is not None:
        display(button)
    return NotebookScreen(HTML, display(HTML(""), display_id=True), button)


def _button(stop: Callable[[], None]) -> Any:
    try:
        from ipywidgets import Button
    except ImportError:
        return None
    button = Button(description="Stop", icon="stop", tooltip="cancel the job")
    button.on_click(lambda _: stop())
    return button
