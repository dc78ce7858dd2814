"""Run reference implementations on OpenCL: created in one process, run in another that compiles nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolrt.workers.desc.codec import decode
from poolrt.workers.engines.target import Target
from poolrt.workers.implementations.primitive_desc import PrimitiveDesc
from poolrt.workers.primitives.key import primitive_key
from tests.references import assert_padding_is_zero, between, numpy_type, pack, unpack
from tests.workers.nesting import entries_of
from tests.workers.own_process import Server

Array = NDArray[Any]


class OpenClRunner:
    """Asks both processes, which share a folder for entries and memories."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._creating = Server("tests.workers.implementations.opencl.reference.creating", str(folder))
        self._running = Server("tests.workers.implementations.opencl.reference.running", str(folder))
        self.target = decode(Target, self._creating.ask("target"))

    def close(self) -> None:
        """End both processes."""
        self._creating.close()
        self._running.close()

    def _create(self, pd: PrimitiveDesc) -> str:
        name = f"{primitive_key(pd).digest}.entry"
        self._creating.ask([name, pd.to_wire()])
        return name

    def results(self, pd: PrimitiveDesc, args: Mapping[int, Array]) -> dict[int, Array]:
        """Return everything that a primitive writes in logical dimensions, by execution argument.

        ``args`` are in logical dimensions; what is written may be among them, as it is before (a sum post-op reads it).
        Raises AssertionError where anything else was changed or padding is not zero.
        """
        memories, file = pd.memories(), "memories"
        before = {arg: np.full(md.nbytes, 0xFF, np.uint8) for arg, md in memories.items()}
        before |= {arg: pack(values, memories[arg]).view(np.uint8) for arg, values in args.items()}
        entries = entries_of(pd, self._create)
        np.concatenate([before[arg] for arg in memories]).tofile(self._folder / file)
        sizes = [(int(arg), md.nbytes) for arg, md in memories.items()]
        assert self._running.ask([entries, file, sizes]) == 0, "the consumer had to compile a kernel"
        parts = np.split(np.fromfile(self._folder / file, np.uint8), np.cumsum([nbytes for _, nbytes in sizes])[:-1])
        after = dict(zip(memories, parts, strict=True))
        outputs = pd.op.outputs()
        for arg, md in memories.items():
            if arg not in outputs:
                assert np.array_equal(after[arg], before[arg]), f"argument {arg} was changed"
            elif md.strides:
                gaps, given = (between(content, md).tobytes() for content in (after[arg], before[arg]))
                assert gaps == given, f"argument {arg}: gaps between its elements were written"
            else:
                assert_padding_is_zero(after[arg].view(numpy_type(md.dtype)), md)
        return {arg: unpack(after[arg].view(numpy_type(memories[arg].dtype)), memories[arg]) for arg in outputs}
