"""Maps from labels to chances, which no graph has: they are no tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...call import NodeCall, Operator
from ...tensors import Operand


def refuse(call: NodeCall) -> Operand:
    """Raise UnsupportedNode that says what does have maps."""
    raise call.unsupported(
        "maps of labels: a graph has tensors only. Sessions return them as outputs: poolrt.onnx.InferenceSession; "
        "skl2onnx leaves them out with the option zipmap=False"
    )


OPERATORS: Final[Mapping[str, Operator]] = {"ZipMap": refuse}
