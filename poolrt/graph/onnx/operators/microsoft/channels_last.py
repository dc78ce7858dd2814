"""Windows over images whose channels are the last dimension, as ONNX Runtime's optimiser writes them for quantised models."""

from __future__ import annotations

from ...call import NodeCall, Operator, Results
from ...tensors import Operand


def channels_last(operator: Operator, *, always: bool = False) -> Operator:
    """Return an operator of images, the first operand and the result, that has their channels last.

    Unless that is ``always`` so, the attribute ``channels_last`` says it.
    """

    def turned(call: NodeCall) -> Results:
        if not always and not call.integer("channels_last", 0):
            return operator(call)
        m, source = call.math, call.tensor(0)
        rank = len(source.shape)
        if rank < 3:
            raise call.malformed(f"input 0: expect an image, got the shape {tuple(source.shape)}")
        image = m.transpose(source, (0, rank - 1, *range(1, rank - 1)))
        found = operator(call.with_operands(image, *call.operands[1:]))
        first: Operand | None = found[0] if isinstance(found, tuple) else found
        if first is None:
            raise call.malformed("it has no result")
        return m.transpose(first, (0, *range(2, rank), 1))

    return turned
