"""A creator: writes the entries of primitive descriptors into a folder."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from poolrt.workers.desc.codec import encode
from poolrt.workers.engines.opencl import opencl_target
from poolrt.workers.implementations.primitive_desc import PrimitiveDesc
from poolrt.workers.kernels.spec import KernelSpec
from poolrt.workers.primitives.entry import pack_entry
from poolrt.workers.primitives.key import primitive_key
from tests.workers.compiled import compiled
from tests.workers.own_process import serve


class Creating:
    """Keeps what it has compiled from one request to the next."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._compiled: dict[KernelSpec, bytes] = {}

    def answer(self, request: Any) -> Any:
        """Return the device's target, or write the entry of a primitive descriptor into the file named.

        The program is described for the descriptor's target, and compiled for this device as it is.
        """
        if request == "target":
            return encode(opencl_target())
        name, wire = request
        pd = PrimitiveDesc.from_wire(wire)
        program = pd.program()
        binaries = [self._binary(spec) for spec in program.kernels]
        names = [spec.name for spec in program.kernels]
        nested = [primitive_key(inner).canonical for inner in program.nested]
        (self._folder / name).write_bytes(pack_entry(pd.impl_name(), "opencl", program, binaries, names, nested))
        return len(self._compiled)

    def _binary(self, spec: KernelSpec) -> bytes:
        if spec not in self._compiled:
            self._compiled[spec] = compiled(spec, opencl_target())
        return self._compiled[spec]


if __name__ == "__main__":
    serve(Creating(Path(sys.argv[1])).answer)
