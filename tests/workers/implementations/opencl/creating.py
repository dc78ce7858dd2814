"""A creator: writes the entries of cases of an operation into a folder."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from poolrt.workers.engines.opencl import opencl_target
from poolrt.workers.engines.target import Target
from poolrt.workers.implementations.primitive_desc import UnsupportedPrimitive, primitive_desc
from poolrt.workers.kernels.spec import KernelSpec
from poolrt.workers.primitives.entry import pack_entry
from tests.workers.cases import cases
from tests.workers.compiled import compiled
from tests.workers.own_process import serve


class Creating:
    """Keeps what it has compiled from one request to the next."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._compiled: dict[KernelSpec, bytes] = {}

    def answer(self, request: Any) -> Any:
        """Write the entries of cases of a kind, by number; return the numbers of those that no implementation accepts.

        The program is described for this device with some fields of its identity changed, and compiled for it as it is.
        """
        kind, changes, numbers = request
        real = opencl_target()
        target = replace(real, device=tuple((name, changes.get(name, value)) for name, value in real.device))
        refused = []
        for number in numbers:
            case = cases(kind)[number]
            try:
                pd = primitive_desc(case.op, case.attr, target)
            except UnsupportedPrimitive:
                refused.append(number)
                continue
            program = pd.program()
            binaries = [self._binary(spec, real) for spec in program.kernels]
            names = [spec.name for spec in program.kernels]
            entry = pack_entry(pd.impl_name(), "opencl", program, binaries, names)
            (self._folder / f"{kind}-{number}.entry").write_bytes(entry)
        return refused

    def _binary(self, spec: KernelSpec, target: Target) -> bytes:
        if spec not in self._compiled:
            self._compiled[spec] = compiled(spec, target)
        return self._compiled[spec]


if __name__ == "__main__":
    serve(Creating(Path(sys.argv[1])).answer)
