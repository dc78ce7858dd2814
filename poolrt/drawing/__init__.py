"""Pictures of plans, as SVG."""

from .diagram import Box, Diagram, Edge, make_diagram
from .layout import TooLarge
from .svg import draw_svg

__all__ = ["Box", "Diagram", "Edge", "TooLarge", "draw_svg", "make_diagram"]
