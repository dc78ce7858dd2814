"""What a step expects of its operands: the engine, the implementation, and the data type and layout of each."""

from __future__ import annotations

from dataclasses import dataclass

from poolrt.workers.desc import MemoryDesc
from poolrt.workers.implementations.primitive_desc import PrimitiveDesc


@dataclass(frozen=True, slots=True)
class KernelType:
    """The expected kernel of a node: where it runs, by which implementation, on which data types and layouts.

    Operands that lie elsewhere or otherwise are brought there by a `LayoutInserter` (PaddlePaddle's data transform between the
    actual and the expected kernel type).
    """

    engine: str
    pd: PrimitiveDesc

    @property
    def implementation(self) -> str:
        """The name of the implementation."""
        return self.pd.impl_name()

    def arguments(self) -> dict[int, MemoryDesc]:
        """Return data type and layout of each execution argument."""
        return {int(arg): desc for arg, desc in self.pd.memories().items()}
