"""The operators that can be imported, by ONNX's name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..call import Operator
from . import arrays, elementwise, normalization, products, views, windows

OPERATORS: Final[Mapping[str, Operator]] = {
    **arrays.OPERATORS,
    **elementwise.OPERATORS,
    **normalization.OPERATORS,
    **products.OPERATORS,
    **views.OPERATORS,
    **windows.OPERATORS,
}
