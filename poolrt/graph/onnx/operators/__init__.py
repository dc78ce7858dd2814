"""The operators that can be imported, by ONNX's name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..call import Operator
from ..domains import MICROSOFT_DOMAIN, ML_DOMAIN
from . import (
    arrays,
    attention,
    bits,
    elementwise,
    logic,
    matrices,
    microsoft,
    ml,
    normalization,
    pool_indices,
    products,
    quantisation,
    random_numbers,
    recurrent,
    reductions,
    regions,
    resizing,
    rotary,
    sampling,
    selection,
    sequences,
    signals,
    tensor_sequences,
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
    **matrices.OPERATORS,
    **normalization.OPERATORS,
    **pool_indices.OPERATORS,
    **products.OPERATORS,
    **quantisation.OPERATORS,
    **random_numbers.OPERATORS,
    **recurrent.OPERATORS,
    **reductions.OPERATORS,
    **regions.OPERATORS,
    **resizing.OPERATORS,
    **rotary.OPERATORS,
    **sampling.OPERATORS,
    **selection.OPERATORS,
    **sequences.OPERATORS,
    **signals.OPERATORS,
    **trigonometry.OPERATORS,
    **views.OPERATORS,
    **windows.OPERATORS,
}

#: Operators on sequences of tensors.
SEQUENCES: Final = tensor_sequences.SEQUENCES

#: The same of other domains than ONNX's own.
OPERATORS_OF: Final[Mapping[str, Mapping[str, Operator]]] = {
    MICROSOFT_DOMAIN: microsoft.OPERATORS,
    ML_DOMAIN: ml.OPERATORS,
}
