"""A consumer: runs entries on memories given as files, and counts what its driver had to compile for that."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from poolrt.workers.engines.opencl import OpenClEngine
from poolrt.workers.execution.opencl_binding import RealizedOpenClPrimitive, bind_launches
from poolrt.workers.memory.opencl import HostBuffers
from poolrt.workers.primitives.entry import parse_entry
from tests.workers.implementations.opencl.running import compiled_kernels
from tests.workers.own_process import serve

_GUARD = 256


class Running:
    """One engine for all requests."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._engine = OpenClEngine(threads=2)

    def answer(self, request: Any) -> Any:
        """Run the last of some entries on a file with all arguments, each as (number, bytes).

        Each entry comes with the numbers of those that are nested in it. Return how many kernels were compiled.
        The file is written anew. Raises AssertionError where memory behind an argument or the scratchpad was written.
        """
        entries, memories, sizes = request
        realized: list[RealizedOpenClPrimitive] = []
        for name, nested in entries:
            entry = parse_entry((self._folder / name).read_bytes())
            realized.append(RealizedOpenClPrimitive(entry, self._engine, [realized[number] for number in nested]))
        primitive = realized[-1]
        ends = np.cumsum([nbytes for _, nbytes in sizes])
        parts = np.split(np.fromfile(self._folder / memories, np.uint8), ends[:-1])
        contents = {arg: part for (arg, _), part in zip(sizes, parts, strict=True)}
        scratchpad = np.zeros(primitive.entry.scratchpad, np.uint8)
        guarded = {
            arg: np.append(content, np.full(_GUARD, 0xFF, np.uint8))
            for arg, content in (*contents.items(), (-1, scratchpad))
        }
        host, before = HostBuffers(self._engine), compiled_kernels()
        buffers = {arg: host.get(array.ctypes.data, array.size) for arg, array in guarded.items()}
        for launch in bind_launches(primitive, {arg: (buffer, 0) for arg, buffer in buffers.items()}, buffers[-1]):
            launch.enqueue(self._engine.queue)
        self._engine.queue.finish()
        for arg, array in guarded.items():
            assert (array[-_GUARD:] == 0xFF).all(), f"memory behind argument {arg} was written"
        np.concatenate([guarded[arg][:-_GUARD] for arg in contents]).tofile(self._folder / memories)
        return compiled_kernels() - before


if __name__ == "__main__":
    serve(Running(Path(sys.argv[1])).answer)
