"""Numbers for names in the tables of reference kernels."""

from __future__ import annotations

from typing import Final

from ..desc.attributes import BINARY_ALGORITHMS, ELTWISE_ALGORITHMS, POST_OP_KINDS
from ..desc.operations.binary import BITWISE_ALGORITHMS
from ..desc.operations.pooling import POOLING_ALGORITHMS
from ..desc.operations.reduction import REDUCTION_ALGORITHMS

_TYPES: Final = ("f64", "f32", "f16", "bf16", "s64", "s32", "s8", "u8", "bool", "u64", "u32", "s16", "u16")
DATA_TYPES: Final = {name: code for code, name in enumerate(_TYPES)}
ELTWISE: Final = {name: code for code, name in enumerate(ELTWISE_ALGORITHMS)}
BINARY: Final = {name: code for code, name in enumerate((*BINARY_ALGORITHMS, *BITWISE_ALGORITHMS))}
#: Kinds of a step of a chain.
STEPS: Final = {name: code for code, name in enumerate(POST_OP_KINDS)}
REDUCTION: Final = {name: code for code, name in enumerate(REDUCTION_ALGORITHMS)}
POOLING: Final = {name: code for code, name in enumerate(POOLING_ALGORITHMS)}
#: Cells of recurrent operations.
CELLS: Final = {name: code for code, name in enumerate(("rnn", "lstm", "gru", "lbr_gru"))}
