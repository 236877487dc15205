"""Draws the pictures of docs/concepts, as docs/images/concept-*.svg. Usage: python scripts/drawings.py [--check]

They are readable on light and on dark pages: colours follow the reader's scheme, and each has a ground of its own.
"""

from __future__ import annotations

import html
import sys
from collections.abc import Iterable

import written_page

STYLE = """\
svg{--ground:#fff;--ink:#1d2b2b;--quiet:#566565;--line:#8fa3a3;--faint:#e9f0ef}
svg{--a:#00695c;--a-ground:#d8efeb;--b:#a34a00;--b-ground:#fde9d2;--c:#4b3fa8;--c-ground:#e5e2fa}
@media (prefers-color-scheme:dark){
svg{--ground:#1e2428;--ink:#e3eaea;--quiet:#a3b3b3;--line:#71868a;--faint:#283136}
svg{--a:#5fd3c0;--a-ground:#143f3b;--b:#ffb26b;--b-ground:#4a3013;--c:#b4abff;--c-ground:#322d5c}}
text{font-family:system-ui,"Segoe UI","DejaVu Sans",sans-serif;font-size:14px;fill:var(--ink)}
.small{font-size:12px}.quiet{fill:var(--quiet)}.strong{font-weight:600}.middle{text-anchor:middle}.end{text-anchor:end}
.a{fill:var(--a)}.b{fill:var(--b)}.c{fill:var(--c)}
rect,circle,path,line{stroke:var(--line);stroke-width:1.5;fill:none}
.ground{fill:var(--ground);stroke:none}.faint{fill:var(--faint);stroke:none}
.box-a{fill:var(--a-ground);stroke:var(--a)}.box-b{fill:var(--b-ground);stroke:var(--b)}
.box-c{fill:var(--c-ground);stroke:var(--c)}.box{fill:var(--ground)}
.line-a{stroke:var(--a);stroke-width:2.5}.line-b{stroke:var(--b);stroke-width:2}.line-c{stroke:var(--c);stroke-width:2}
.dashed{stroke-dasharray:5 4}.tip{fill:var(--line);stroke:none}
"""


class Drawing:
    """A picture that grows by shapes."""

    def __init__(self, width: int, height: int, says: str) -> None:
        self.size = width, height
        self.says = says
        self.parts: list[str] = []
        self.shape("rect", "ground", width="100%", height="100%", rx=8)

    def shape(self, tag: str, cls: str, **attributes: object) -> None:
        """One element of SVG."""
        given = " ".join(
            f'{name.replace("_", "-")}="{value}"' for name, value in attributes.items()
        )
        self.parts.append(f'<{tag} class="{cls}" {given}/>')

    def text(self, x: float, y: float, text: str, cls: str = "") -> None:
        """Words that begin, or with `middle` and `end` are centred or end, at x."""
        self.parts.append(f'<text class="{cls}" x="{x:g}" y="{y:g}">{html.escape(text)}</text>')

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        lines: Iterable[str],
        cls: str = "box",
    ) -> None:
        """A box with lines of text, the first of them in bold."""
        words = list(lines)
        self.shape("rect", cls, x=x, y=y, width=width, height=height, rx=6)
        top = y + height / 2 - (len(words) - 1) * 9 + 5
        for n, line in enumerate(words):
            self.text(
                x + width / 2, top + n * 18, line, "middle strong" if n == 0 else "middle small"
            )

    def arrow(self, *points: tuple[float, float], cls: str = "") -> None:
        """A line through points, with a tip at its end."""
        path = "M " + " L ".join(f"{x:g} {y:g}" for x, y in points)
        self.shape("path", cls, d=path, marker_end="url(#tip)")

    def line(self, x1: float, y1: float, x2: float, y2: float, cls: str = "") -> None:
        """A line."""
        self.shape("line", cls, x1=x1, y1=y1, x2=x2, y2=y2)

    def svg(self) -> str:
        """The file's text."""
        width, height = self.size
        tip = (
            '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7"'
            ' orient="auto-start-reverse"><path class="tip" d="M 0 0 L 10 5 L 0 10 z"/></marker></defs>'
        )
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
            f'height="{height}" role="img" aria-label="{html.escape(self.says)}">\n'
            f"<style>{STYLE}</style>\n{tip}\n" + "\n".join(self.parts) + "\n</svg>\n"
        )


# -- time ------------------------------------------------------------------------------------------

SECONDS = (3, 8, 11, 7, 16, 13, 21, 4, 26)
"""When the records of the picture happened, in the order in which they arrive. docs/concepts/time.md runs the same."""

DISORDER = 5


def watermarks() -> Drawing:
    """Records by arrival and by event time, the watermark behind the latest, and windows that fire as it passes."""
    drawing = Drawing(
        760, 400, "Records by arrival and event time; the watermark follows five seconds behind"
    )
    left, bottom, step, scale = 90, 360, 66, 10.5

    def x(n: float) -> float:
        return left + 40 + n * step

    def y(second: float) -> float:
        return bottom - second * scale

    for n, start in enumerate((0, 10, 20)):
        if n % 2 == 0:
            drawing.shape("rect", "faint", x=left, y=y(start + 10), width=640, height=10 * scale)
        where = (left + 634, "small quiet end") if start == 0 else (left + 8, "small quiet")
        drawing.text(where[0], y(start + 10) + 18, f"window {start} s to {start + 10} s", where[1])
    for second in (0, 10, 20, 30):
        drawing.text(left - 10, y(second) + 5, f"{second} s", "small quiet end")
        drawing.line(left, y(second), left + 640, y(second), "dashed" if second else "")
    drawing.text(24, y(30) - 18, "when it happened", "small quiet")
    drawing.text(left + 634, bottom + 24, "order of arrival →", "small quiet end")

    latest = 0
    before = None
    path = ""
    fired: dict[int, float] = {}
    for n, second in enumerate(SECONDS):
        late = before is not None and second - second % 10 + 10 <= before
        latest = max(latest, second)
        watermark = max(latest - DISORDER, 0)
        for end in (10, 20):
            if watermark >= end and end not in fired:
                fired[end] = x(n)
        path += f"{'M' if n == 0 else 'L'} {x(n):g} {y(before or 0):g} L {x(n):g} {y(watermark):g} "
        before = watermark
        drawing.shape("circle", "box-b" if late else "box-a", cx=x(n), cy=y(second), r=13)
        drawing.text(x(n), y(second) + 5, str(second), "small middle strong")
        if late:
            drawing.text(x(n), y(second) + 30, "late", "small middle b strong")
    drawing.shape("path", "line-c", d=path + f"L {left + 640} {y(before or 0):g}")
    drawing.text(x(2) + 12, y(3.2), "watermark: the latest so far, less 5 s", "small c strong")
    for end, at in fired.items():
        drawing.shape("circle", "box-c", cx=at, cy=y(end), r=5)
        words = f"the window to {end} s fires"
        drawing.text(
            at + (12 if end == 10 else -12), y(end) + 19, words, "small c" + " end" * (end > 10)
        )
    return drawing


def valve() -> Drawing:
    """An operator with three inputs has the smallest of their watermarks, without those that are idle."""
    drawing = Drawing(
        760, 230, "The watermark of an operator is the smallest of its inputs that are not idle"
    )
    rows = [
        ("split 0", "12:00:40", "box"),
        ("split 1", "12:00:25", "box-c"),
        ("split 2", "idle", "box-b"),
    ]
    for n, (name, time, cls) in enumerate(rows):
        top = 28 + n * 62
        drawing.box(30, top, 110, 44, [name])
        drawing.arrow((140, top + 22), (210, top + 22))
        drawing.box(212, top, 120, 44, [time], cls)
        drawing.arrow((332, top + 22), (440, 112), cls="dashed" if time == "idle" else "")
    drawing.box(442, 80, 118, 64, ["operator", "the minimum"])
    drawing.arrow((560, 112), (620, 112))
    drawing.box(622, 90, 110, 44, ["12:00:25"], "box-c")
    drawing.text(500, 180, "an idle input is left out until it speaks again", "small quiet middle")
    return drawing


# -- epochs ----------------------------------------------------------------------------------------


def epochs() -> Drawing:
    """A source's positions, cut into epochs; each takes the state from one version to the next."""
    drawing = Drawing(
        760,
        380,
        "An epoch reads a range of positions and takes the state from one version to the next",
    )
    drawing.text(24, 34, "a split of the source, by position", "small quiet")
    names = ["epoch 7", "epoch 8", "epoch 9"]
    ranges = ["0 to 400", "400 to 950", "950 to 1300"]
    for n, (name, positions) in enumerate(zip(names, ranges, strict=True)):
        left = 24 + n * 240
        drawing.shape("rect", "box-a", x=left, y=46, width=232, height=34, rx=4)
        drawing.text(left + 116, 68, positions, "middle small strong")
        drawing.arrow((left + 116, 80), (left + 116, 112))
        drawing.box(left + 34, 114, 164, 64, [name, "tasks read, run, write"])
        drawing.arrow((left + 116, 178), (left + 116, 214))
        drawing.box(
            left + 34, 216, 164, 58, [f"state, version {7 + n}", "only what has changed"], "box-c"
        )
        drawing.arrow((left + 116, 274), (left + 116, 306))
        drawing.box(left + 34, 308, 164, 50, [f"checkpoint {7 + n}", "the manifest"], "box-b")
        if n < 2:
            drawing.arrow(
                (left + 198, 245), (left + 228, 245), (left + 228, 146), (left + 272, 146)
            )
    return drawing


# -- exchange --------------------------------------------------------------------------------------


def exchange() -> Drawing:
    """Two senders with a list for each target, buffers that cross as rows of Spark's, and receivers that order them."""
    drawing = Drawing(
        760,
        340,
        "Senders keep a list per target; full lists cross Spark as one row; receivers order them",
    )
    heads = [
        (110, "level 0: one loop per subtask"),
        (382, "Spark's shuffle"),
        (640, "level 1: keyed state"),
    ]
    for x, text in heads:
        drawing.text(x, 30, text, "small quiet middle")
    for n in range(2):
        top = 56 + n * 140
        drawing.box(20, top, 110, 96, [f"subtask {n}", "read, map,", "key"], "box")
        for target in range(2):
            low = top + 4 + target * 48
            drawing.arrow((130, top + 48), (158, low + 20))
            drawing.box(
                160, low, 128, 40, [f"for {target}: 8,192"], "box-a" if target == 0 else "box-c"
            )
            end = 56 + target * 140 + 30 + n * 36
            drawing.arrow((288, low + 20), (330, low + 20), (440, end), (506, end))
    for target in range(2):
        top = 56 + target * 140
        cls = "box-a" if target == 0 else "box-c"
        groups = "key groups 0 to 63" if target == 0 else "key groups 64 to 127"
        drawing.box(
            510, top, 226, 96, [f"subtask {target}", groups, "buffers by (sequence, channel)"], cls
        )
    drawing.text(224, 322, "a list for each target", "small quiet middle")
    drawing.text(330, 322, "one row of Spark's holds thousands of records", "small quiet")
    return drawing


# -- exactly once ----------------------------------------------------------------------------------

STEPS = (
    ("1 plan", "what each split gives"),
    ("2 run", "state, and output nobody sees yet"),
    ("3 check", "every task has reported"),
    ("4 publish", "the manifest, made once"),
    ("5 commit", "output becomes visible"),
    ("6 deliver", "print, collect"),
    ("7 remove", "what is not needed"),
)
"""The steps of an epoch, as docs/reliability.md numbers them."""


def exactly_once() -> Drawing:
    """The steps of an epoch, and where the next driver goes on if one dies in them."""
    drawing = Drawing(
        760,
        420,
        "Before the manifest a crash repeats the epoch; after it the next driver commits again",
    )
    for n, (name, what) in enumerate(STEPS):
        top = 24 + n * 54
        cls = "box" if n < 3 else "box-b" if n == 3 else "box-c"
        drawing.shape("rect", cls, x=24, y=top, width=330, height=40, rx=6)
        drawing.text(38, top + 25, name, "strong")
        drawing.text(128, top + 25, what, "small")
        if n:
            drawing.arrow((70, top - 14), (70, top - 1))
    drawing.shape("path", "", d="M 372 26 L 384 26 L 384 174 L 372 174")
    drawing.box(
        410,
        46,
        326,
        108,
        [
            "a crash here",
            "there is no checkpoint n: whoever goes on",
            "starts from n-1, reads the same positions",
            "again; nobody has seen anything of n",
        ],
    )
    drawing.shape("path", "line-c", d="M 372 188 L 384 188 L 384 390 L 372 390")
    drawing.box(
        410,
        226,
        326,
        126,
        [
            "a crash here",
            "checkpoint n is there: whoever goes on",
            "commits what it has left to commit.",
            "A commit that is repeated finds what",
            "the first one did, and does nothing",
        ],
        "box-c",
    )
    return drawing


DRAWINGS = {
    "watermarks": watermarks,
    "valve": valve,
    "epochs": epochs,
    "exchange": exchange,
    "exactly-once": exactly_once,
}


def main() -> int:
    """Write all of them, or say which is not up to date."""
    codes = [
        written_page.main(f"images/concept-{name}.svg", draw().svg())
        for name, draw in DRAWINGS.items()
    ]
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
