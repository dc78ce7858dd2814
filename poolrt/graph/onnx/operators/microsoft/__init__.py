"""The operators of the domain ``com.microsoft``, which ONNX Runtime's tools write, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...call import Operator
from . import (
    attention,
    dynamic,
    fused,
    group_query,
    multi_head,
    normalization,
    quantised,
    recurrent,
    rotary,
    weight_only,
)

OPERATORS: Final[Mapping[str, Operator]] = {
    **attention.OPERATORS,
    **dynamic.OPERATORS,
    **fused.OPERATORS,
    **group_query.OPERATORS,
    **multi_head.OPERATORS,
    **normalization.OPERATORS,
    **quantised.OPERATORS,
    **recurrent.OPERATORS,
    **rotary.OPERATORS,
    **weight_only.OPERATORS,
}
