"""A consumer: runs the entries of cases of an operation, and counts what its driver had to compile for that."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from poolrt.workers.desc import Arg
from poolrt.workers.engines.opencl import OpenClEngine, runtime
from poolrt.workers.execution.opencl_binding import RealizedOpenClPrimitive, bind_launches
from poolrt.workers.memory.opencl import HostBuffers, device_buffer
from poolrt.workers.primitives.entry import parse_entry
from tests.references import pack
from tests.workers.cases import Case, cases
from tests.workers.own_process import serve

_GUARD = 256


class Running:
    """One engine for all requests."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._engine = OpenClEngine(threads=2)

    def answer(self, request: Any) -> Any:
        """Run entries of cases of a kind, by number, and write the results; return what ran, kernels compiled, damage done."""
        kind, numbers = request
        done, compiled, damage = [], 0, []
        for number in numbers:
            case = cases(kind)[number]
            file = self._folder / f"{kind}-{number}.entry"
            if not file.exists():
                continue
            primitive = RealizedOpenClPrimitive(parse_entry(file.read_bytes()), self._engine)
            before = compiled_kernels()
            result, wrong = self._run(case, primitive)
            compiled += compiled_kernels() - before
            damage += [f"{case}: {what}" for what in wrong]
            np.save(self._folder / f"{kind}-{number}.npy", result)
            done.append(number)
        return {"done": done, "compiled": compiled, "damage": damage}

    def _run(self, case: Case, primitive: RealizedOpenClPrimitive) -> tuple[Any, list[str]]:
        memories, host = case.memories(), HostBuffers(self._engine)
        arrays = {}
        for arg, md in memories.items():
            arrays[int(arg)] = np.full(md.nbytes + _GUARD, 0xFF, np.uint8)
            if arg != Arg.DST:
                arrays[int(arg)][: md.nbytes] = pack(case.args[arg], md).view(np.uint8)
        before = {arg: array.copy() for arg, array in arrays.items()}
        places = {arg: (host.get(array.ctypes.data, array.size - _GUARD), 0) for arg, array in arrays.items()}
        scratchpad = device_buffer(self._engine, primitive.entry.scratchpad)
        for launch in bind_launches(primitive, places, scratchpad):
            launch.enqueue(self._engine.queue)
        self._engine.queue.finish()
        size = memories[Arg.DST].nbytes
        wrong = [
            f"argument {a} was changed" for a, array in arrays.items() if a != Arg.DST and (array != before[a]).any()
        ]
        if (arrays[Arg.DST][size:] != 0xFF).any():
            wrong.append("memory behind dst was written")
        return arrays[Arg.DST][:size].view(np.float32), wrong


def compiled_kernels() -> int:
    """Return how many work-group functions lie in PoCL's cache: those of binaries, and those compiled here."""
    # This is asked twice for each of a thousand programs; Path.rglob takes twice as long.
    return sum(name.endswith(".so") for _, _, names in os.walk(runtime().cache) for name in names)


if __name__ == "__main__":
    serve(Running(Path(sys.argv[1])).answer)
