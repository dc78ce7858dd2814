"""Small tables in HTML, for the results of cells in notebooks: no style, no script, every text escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

#: Rows of a table that are shown; of a longer one, the first and the last.
_FIRST: Final = 40
_LAST: Final = 10
#: Characters of a text that are shown.
_TEXT: Final = 120


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table as HTML; ``rows`` have as many cells as ``head``, of any type."""
    shown = [_row("td", cells) for cells in rows]
    left_out = len(shown) - _FIRST - _LAST
    if left_out > 0:
        shown[_FIRST:-_LAST] = [f'<tr><td colspan="{len(head)}">{left_out} more</td></tr>']
    body = "".join(shown)
    return f"<div>{text(caption)}<table><thead>{_row('th', head)}</thead><tbody>{body}</tbody></table></div>"


def text(value: Any) -> str:
    """Return a value as escaped text of bounded length."""
    from html import escape

    found = str(value)
    return escape(found if len(found) <= _TEXT else found[: _TEXT - 3] + "...")


def shape_of(dims: Iterable[int]) -> str:
    """Return a shape as text: ``64x784``, and ``scalar`` for no dimensions."""
    return "x".join(map(str, dims)) or "scalar"


def _row(kind: str, cells: Sequence[Any]) -> str:
    return "<tr>" + "".join(f"<{kind}>{text(cell)}</{kind}>" for cell in cells) + "</tr>"
