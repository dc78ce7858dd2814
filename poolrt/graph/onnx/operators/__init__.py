"""The operators that can be imported, by ONNX's name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..call import Operator
from . import (
    arrays,
    attention,
    bits,
    elementwise,
    logic,
    microsoft,
    normalization,
    products,
    quantisation,
    recurrent,
    reductions,
    resizing,
    sampling,
    selection,
    trigonometry,
    views,
    windows,
)

OPERATORS: Final[Mapping[str, Operator]] = {
    **arrays.OPERATORS,
    **attention.OPERATORS,
    **bits.OPERATORS,
    **elementwise.OPERATORS,
    **logic.OPERATORS,
    **normalization.OPERATORS,
    **products.OPERATORS,
    **quantisation.OPERATORS,
    **recurrent.OPERATORS,
    **reductions.OPERATORS,
    **resizing.OPERATORS,
    **sampling.OPERATORS,
    **selection.OPERATORS,
    **trigonometry.OPERATORS,
    **views.OPERATORS,
    **windows.OPERATORS,
}

#: The same of other domains than ONNX's own.
OPERATORS_OF: Final[Mapping[str, Mapping[str, Operator]]] = {"com.microsoft": microsoft.OPERATORS}
