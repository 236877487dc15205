"""Blocks of code in pages of the documentation: what they are, what was said of them, what they print."""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["COMMAND", "Block", "blocks_in", "printed"]

COMMAND = re.compile(r"\$ |(?:[A-Z_]+=\S+ )*(cd|export|kill|make|millstream|pip|python|source)\b")
"""How a block begins that is typed at a shell."""


class Block(NamedTuple):
    """A block of code, with the text and the comments before it. It is adjacent if there is no text."""

    language: str
    text: str
    marks: dict[str, str]
    before: str

    @property
    def adjacent(self) -> bool:
        return not self.before.strip()


def blocks_in(text: str) -> list[Block]:
    """All blocks of a page, in order."""
    found = []
    end = 0
    for block in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        between = text[end : block.start()]
        last = re.search(r"(?:<!--(?:(?!-->).)*-->\s*)*\Z", between, re.DOTALL)
        comments = last[0] if last else ""
        marks = re.findall(r"<!-- ([\w ]+):\s+(.*?)\s*-->", comments, re.DOTALL)
        rest = re.sub(r"<!--.*?-->", "", between, flags=re.DOTALL)
        found.append(Block(block[1], block[2], dict(marks), rest))
        end = block.end()
    return found


def printed(following: list[Block]) -> str | None:
    """What a program prints, if one of the blocks that stand directly behind it says so."""
    for block in following[:2]:
        if not block.adjacent or block.language:
            return None
        if not COMMAND.match(block.text):
            return block.text
    return None
