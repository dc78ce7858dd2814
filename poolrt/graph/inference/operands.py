"""The order of a node's operands and results: that of oneDNN's numbers for execution arguments."""

from __future__ import annotations

from poolrt.workers.desc import OpDesc


def operand_arguments(op: OpDesc) -> tuple[int, ...]:
    """Return the execution arguments that an operation reads, in the order of a node's operands."""
    written = op.outputs()
    return tuple(sorted(int(arg) for arg in op.memories() if arg not in written))


def result_arguments(op: OpDesc) -> tuple[int, ...]:
    """Return the execution arguments that an operation writes, in the order of a node's results."""
    return tuple(sorted(int(arg) for arg in op.outputs()))
