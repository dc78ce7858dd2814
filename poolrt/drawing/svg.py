"""A diagram as SVG: layers from top to bottom, a colour for each kind of implementation, shapes at the edges."""

from __future__ import annotations

from collections import Counter
from html import escape
from typing import Final

from .diagram import KINDS, Box, Diagram, Edge
from .layout import WIDTH, Layout, Point, place

#: Kind -> fill and border.
_COLOURS: Final = {
    "native": ("#d3ecd0", "#3d7a38"),
    "nested": ("#cfe2f8", "#2f6199"),
    "opencl": ("#e5d8f5", "#6d4aa0"),
    "reference": ("#f9c8c2", "#b03022"),
    "view": ("#f3f3f3", "#8a8a8a"),
    "port": ("#fff6d6", "#a08320"),
}
#: Pixels: the height of a box, the margin, a line of the legend.
_HEIGHT: Final = 36.0
#: A view has one line.
_LOW: Final = 20.0
_MARGIN: Final = 24.0
_LINE: Final = 20.0
#: Characters that fit into the two lines of a box.
_TITLE: Final = 40
_DETAIL: Final = 50
_STYLE: Final = (
    "text{font-family:'DejaVu Sans',Verdana,sans-serif;fill:#222}"
    ".t{font-size:11px;font-weight:bold;text-anchor:middle}.d{font-size:9.5px;fill:#555;text-anchor:middle}"
    ".s{font-size:9.5px;fill:#333;stroke:#fff;stroke-width:3px;paint-order:stroke}"
    ".r{font-size:9.5px;fill:#b35c00;stroke:#fff;stroke-width:3px;paint-order:stroke}"
    ".e{fill:none;stroke:#777;stroke-width:1.2}.h{font-size:15px;font-weight:bold}.l{font-size:12px}"
)


def draw_svg(diagram: Diagram) -> str:
    """Return a picture. Raises TooLarge."""
    layout = place(len(diagram.boxes), [(edge.source, edge.target) for edge in diagram.edges])
    kinds = Counter(box.kind for box in diagram.boxes)
    head = _MARGIN + _LINE * (len(diagram.notes) + 2.5)
    left = min(x for x, _ in layout.boxes + tuple(p for way in layout.ways for p in way)) - WIDTH / 2 - _MARGIN
    layout = _moved(layout, -left, head + _HEIGHT)
    points = layout.boxes + tuple(point for way in layout.ways for point in way)
    legend = _legend(diagram, kinds)
    width = max(max(x for x, _ in points) + WIDTH / 2 + _MARGIN, 960.0)
    height = max(y for _, y in points) + _HEIGHT + _MARGIN
    entries = _entries(diagram.edges, layout)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}">',
        f"<title>{escape(diagram.title)}</title><style>{_STYLE}</style>",
        '<defs><marker id="a" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#777"/></marker></defs>',
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="#fff"/>',
        *legend,
        *(_way(diagram, layout, number, entry) for number, entry in enumerate(entries)),
        *(_box(box, point) for box, point in zip(diagram.boxes, layout.boxes, strict=True)),
        *_labels(diagram, layout, entries),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _moved(layout: Layout, right: float, down: float) -> Layout:
    def move(points: tuple[Point, ...]) -> tuple[Point, ...]:
        return tuple((x + right, y + down) for x, y in points)

    return Layout(move(layout.boxes), tuple(map(move, layout.ways)))


def _legend(diagram: Diagram, kinds: Counter[str]) -> list[str]:
    y = _MARGIN + 10
    lines = [f'<text class="h" x="{_MARGIN:.0f}" y="{y:.0f}">{escape(diagram.title)}</text>']
    for note in diagram.notes:
        y += _LINE
        lines.append(f'<text class="l" x="{_MARGIN:.0f}" y="{y:.0f}">{escape(note)}</text>')
    x, y = _MARGIN, y + _LINE
    for kind, what in KINDS.items():
        if kinds[kind]:
            text = f"{what} ({kinds[kind]})"
            lines.append(f'<rect x="{x:.0f}" y="{y - 11:.0f}" width="18" height="14" rx="3" {_fill(kind)}/>')
            lines.append(f'<text class="l" x="{x + 24:.0f}" y="{y:.0f}">{escape(text)}</text>')
            x += 44 + 7.4 * len(text)
    return lines


def _fill(kind: str) -> str:
    fill, border = _COLOURS[kind]
    dashes = ' stroke-dasharray="4 3"' if kind == "view" else ""
    return f'fill="{fill}" stroke="{border}"{dashes}'


def _box(box: Box, at: Point) -> str:
    x, y = at
    height = _height(box)
    tooltip = f"<title>{escape(box.tooltip)}</title>" if box.tooltip else ""
    lines = [
        f'<g>{tooltip}<rect x="{x - WIDTH / 2:.1f}" y="{y - height / 2:.1f}" width="{WIDTH:.0f}" '
        f'height="{height:.0f}" rx="5" {_fill(box.kind)}/>'
    ]
    if box.kind == "view":
        text = escape(_cut(f"{box.title} · {box.detail}", _DETAIL))
        lines.append(f'<text class="d" x="{x:.1f}" y="{y + 3.5:.1f}">{text}</text></g>')
    else:
        lines.append(f'<text class="t" x="{x:.1f}" y="{y - 3:.1f}">{escape(_cut(box.title, _TITLE))}</text>')
        lines.append(f'<text class="d" x="{x:.1f}" y="{y + 11:.1f}">{escape(_cut(box.detail, _DETAIL))}</text></g>')
    return "".join(lines)


def _height(box: Box) -> float:
    return _LOW if box.kind == "view" else _HEIGHT


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _entries(edges: tuple[Edge, ...], layout: Layout) -> list[float]:
    """Return where each edge enters its box: side by side, in the order in which they come."""
    by_box: dict[int, list[int]] = {}
    for number, edge in enumerate(edges):
        by_box.setdefault(edge.target, []).append(number)
    found = [0.0] * len(edges)
    for target, numbers in by_box.items():
        x, _ = layout.boxes[target]
        numbers.sort(key=lambda each: (*layout.ways[each][-1:], layout.boxes[edges[each].source])[0][0])
        for place_, each in enumerate(numbers):
            found[each] = x - WIDTH / 2 + WIDTH * (place_ + 1) / (len(numbers) + 1)
    return found


def _way(diagram: Diagram, layout: Layout, number: int, entry: float) -> str:
    edge = diagram.edges[number]
    (x, y), (_, end) = layout.boxes[edge.source], layout.boxes[edge.target]
    here = (x, y + _height(diagram.boxes[edge.source]) / 2)
    parts = [f"M{here[0]:.1f} {here[1]:.1f}"]
    # Straight down beside the boxes of a layer, and curved between two layers
    for point in layout.ways[number]:
        parts.append(f"{_curve(here, (point[0], point[1] - _HEIGHT / 2))}V{point[1] + _HEIGHT / 2:.1f}")
        here = (point[0], point[1] + _HEIGHT / 2)
    parts.append(_curve(here, (entry, end - _height(diagram.boxes[edge.target]) / 2)))
    return f'<path class="e" marker-end="url(#a)" d="{"".join(parts)}"/>'


def _curve(here: Point, there: Point) -> str:
    middle = (here[1] + there[1]) / 2
    return f"C{here[0]:.1f} {middle:.1f} {there[0]:.1f} {middle:.1f} {there[0]:.1f} {there[1]:.1f}"


def _labels(diagram: Diagram, layout: Layout, entries: list[float]) -> list[str]:
    """Return the shape of each tensor, once below the box that it comes from, and the marks of reorders."""
    lines = []
    for source, label in dict.fromkeys((edge.source, edge.label) for edge in diagram.edges):
        x, y = layout.boxes[source]
        y += _height(diagram.boxes[source]) / 2 + 11
        lines.append(f'<text class="s" x="{x + 5:.1f}" y="{y:.1f}">{escape(label)}</text>')
    for number, edge in enumerate(diagram.edges):
        if edge.reordered:
            x = entries[number]
            y = layout.boxes[edge.target][1] - _height(diagram.boxes[edge.target]) / 2
            lines.append(f'<circle cx="{x:.1f}" cy="{y - 10:.1f}" r="3.5" fill="#e08a2c"/>')
            lines.append(f'<text class="r" x="{x + 6:.1f}" y="{y - 6:.1f}">reorder</text>')
    return lines
