"""The public class of Reorder: see `desc.operations.reorder`."""

from __future__ import annotations

from typing import Any, overload

from ..desc import MemoryDesc, PrimitiveAttr
from ..desc.operations.reorder import Reorder as ReorderDesc
from ..engines.engine import Engine
from ..execution.cross_engine.desc import describe_cross_engine
from ..execution.primitive_desc_iface import PrimitiveDescIface, describe
from ..streams.stream import Stream
from .operation import Operation


class Reorder(ReorderDesc, metaclass=Operation):
    """Copy a tensor into another layout or data type, or to another engine."""

    @overload
    @staticmethod
    def PrimitiveDesc(
        engine: Engine, src: MemoryDesc, dst: MemoryDesc, src_engine: str = "", dst_engine: str = "", wraps: bool = False,
        *, attr: PrimitiveAttr | None = None, hint: PrimitiveDescIface | None = None, stream: Stream | None = None,
    ) -> PrimitiveDescIface: ...  # fmt: skip

    @overload
    @staticmethod
    def PrimitiveDesc(
        engine: Engine, src: MemoryDesc, dst_engine: Engine, dst: MemoryDesc, /,
        *, attr: PrimitiveAttr | None = None, hint: PrimitiveDescIface | None = None, stream: Stream | None = None,
    ) -> PrimitiveDescIface: ...  # fmt: skip

    @overload
    @staticmethod
    def PrimitiveDesc(
        engine: Engine, src: MemoryDesc, *, dst_engine: Engine, dst: MemoryDesc,
        attr: PrimitiveAttr | None = None, hint: PrimitiveDescIface | None = None, stream: Stream | None = None,
    ) -> PrimitiveDescIface: ...  # fmt: skip

    @staticmethod
    def PrimitiveDesc(
        engine: Engine, src: MemoryDesc, dst: Any, src_engine: Any = "", dst_engine: Any = "", wraps: bool = False,
        *, attr: PrimitiveAttr | None = None, hint: PrimitiveDescIface | None = None, stream: Stream | None = None,
    ) -> PrimitiveDescIface:  # fmt: skip
        """Return the primitive descriptor for one engine, ``(engine, src, dst)``, or two: ``(engine, src, dst_engine, dst)``.

        The first engine is that of src then. A reorder between two runs on streams of the one that is no CPU, on those of
        src's where neither is; described for a ``stream`` on a CPU it is computed there. Raises as `describe` does.
        """
        if isinstance(src_engine, MemoryDesc):  # by position
            return describe_cross_engine(engine, src, dst, src_engine, attr, hint, stream)
        if not isinstance(dst_engine, str) and src_engine == "":
            return describe_cross_engine(engine, src, dst_engine, dst, attr, hint, stream)
        return describe(ReorderDesc, engine, (src, dst, src_engine, dst_engine, wraps), attr, hint, stream)
