"""Plain text of bounded width: aligned columns whose cells wrap, and wrapped paragraphs."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

WIDTH = 120
GAP = "  "
MIN_TEXT_CHARS = 8


def grid(heads: Sequence[str], lines: Sequence[Sequence[str]], *, right: Sequence[bool], width: int = WIDTH) -> str:
    """
    :param heads: one per column
    :param lines: cells, one per column each
    :param right: per column, whether it holds numbers, which are aligned to the right
    :param width: that no line exceeds, as long as every column can have a few characters
    :return: the lines of the grid, headed and underlined
    """
    columns = list(zip(heads, *lines, strict=True))
    widths = _widths(columns, right=right, room=width - len(GAP) * (len(heads) - 1))
    out = _wrapped_line(heads, widths, right=right)
    out.append(GAP.join("-" * size for size in widths))
    for cells in lines:
        out += _wrapped_line(cells, widths, right=right)
    return "\n".join(out)


def paragraph(text: str, *, label: str = "", width: int = WIDTH) -> str:
    """
    :param text: of any length
    :param label: stands in front of the first line; the others are indented by its length
    :param width: that no line exceeds
    :return: the lines
    """
    return textwrap.fill(
        text, width=width, initial_indent=label, subsequent_indent=" " * len(label), break_on_hyphens=False
    )


def _widths(columns: Sequence[Sequence[str]], *, right: Sequence[bool], room: int) -> list[int]:
    """
    Narrows the widest column, character by character, until all fit: first those of numbers, whose headings wrap well,
    then those of words; then words are broken, and numbers only if nothing else helps.
    """
    widths = [max(map(len, cells)) for cells in columns]
    words = [[word for cell in cells for word in cell.split()] for cells in columns]
    whole = [max(map(len, found), default=0) for found in words]
    numbers = [max((len(word) for word in found if _is_number(word)), default=0) for found in words]
    broken = [
        max(number, MIN_TEXT_CHARS) if is_right else MIN_TEXT_CHARS
        for number, is_right in zip(numbers, right, strict=True)
    ]
    anything = [1] * len(widths)
    for floor, only_numbers in ((whole, True), (whole, False), (broken, False), (anything, False)):
        while sum(widths) > room:
            may_shrink = [
                index for index, size in enumerate(widths) if size > floor[index] and (right[index] or not only_numbers)
            ]
            if not may_shrink:
                break
            widths[max(may_shrink, key=widths.__getitem__)] -= 1
    return widths


def _is_number(word: str) -> bool:
    return word.lstrip("+-")[:1].isdigit()


def _wrapped_line(cells: Sequence[str], widths: Sequence[int], *, right: Sequence[bool]) -> list[str]:
    wrapped = [
        textwrap.wrap(cell, width=size, break_on_hyphens=False) or [""]
        for cell, size in zip(cells, widths, strict=True)
    ]
    height = max(map(len, wrapped))
    lines = []
    for index in range(height):
        parts = [
            (part.rjust if is_right else part.ljust)(size)
            for part, size, is_right in zip(
                (cell[index] if index < len(cell) else "" for cell in wrapped), widths, right, strict=True
            )
        ]
        lines.append(GAP.join(parts).rstrip())
    return lines
