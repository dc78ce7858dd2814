"""The public class of Dft: see `desc.operations.dft`."""

from __future__ import annotations

from ..desc import MemoryDesc, PrimitiveAttr
from ..desc.operations.dft import Dft as DftDesc
from ..engines.engine import Engine
from ..execution.primitive_desc_iface import PrimitiveDescIface, describe
from ..streams.stream import Stream
from .operation import Operation


class Dft(DftDesc, metaclass=Operation):
    """Transform signals along an axis to their frequencies, or back."""

    @staticmethod
    def PrimitiveDesc(
        engine: Engine, src: MemoryDesc, dst: MemoryDesc, axis: int, length: int, inverse: bool = False,
        one_sided: bool = False,
        *, attr: PrimitiveAttr | None = None, hint: PrimitiveDescIface | None = None, stream: Stream | None = None,
    ) -> PrimitiveDescIface:  # fmt: skip
        """Return the primitive descriptor of the best implementation for an engine: see `describe`."""
        return describe(DftDesc, engine, (src, dst, axis, length, inverse, one_sided), attr, hint, stream)
