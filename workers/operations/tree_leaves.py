"""The public class of TreeLeaves: see `desc.operations.tree_leaves`."""

from __future__ import annotations

from ..desc import MemoryDesc, PrimitiveAttr
from ..desc.operations.tree_leaves import TreeLeaves as TreeLeavesDesc
from ..engines.engine import Engine
from ..execution.primitive_desc_iface import PrimitiveDescIface, describe
from ..streams.stream import Stream
from .operation import Operation


class TreeLeaves(TreeLeavesDesc, metaclass=Operation):
    """Find the leaves of decision trees in which rows end."""

    @staticmethod
    def PrimitiveDesc(
        engine: Engine, src: MemoryDesc, nodes: MemoryDesc, limits: MemoryDesc, roots: MemoryDesc, dst: MemoryDesc,
        levels: int,
        *, attr: PrimitiveAttr | None = None, hint: PrimitiveDescIface | None = None, stream: Stream | None = None,
    ) -> PrimitiveDescIface:  # fmt: skip
        """Return the primitive descriptor of the best implementation for an engine: see `describe`."""
        return describe(TreeLeavesDesc, engine, (src, nodes, limits, roots, dst, levels), attr, hint, stream)
