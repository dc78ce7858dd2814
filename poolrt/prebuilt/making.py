"""Make the file of prebuilt kernels: what an earlier file has under the same keys is kept, all else is compiled."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from poolrt.cachestore import Key
from poolrt.cachestore.deferred_dataclass import dataclass
from poolrt.cachestore.errors import EntryCorrupt, PathRefused
from poolrt.cachestore.prebuilt import PrebuiltFile, write_prebuilt
from poolrt.version import VERSION
from poolrt.workers.primitives.compiler_pool import CompilerPool
from poolrt.workers.primitives.entry import parse_entry
from poolrt.workers.primitives.toolchain import toolchain

from .collection import Collection

if TYPE_CHECKING:
    from poolrt.workers.implementations.primitive_desc import PrimitiveDesc

#: Called with the number of kernels done and the number in all.
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Made:
    """The result of `make`: a file of ``kernels``, of which ``compiled`` were not in the former file; ``bytes`` in all."""

    path: str
    kernels: int
    compiled: int
    bytes: int

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as a dictionary."""
        return asdict(self)


def make(path: str, kernels: Collection, show: Progress = lambda done, of: None) -> Made:
    """Write the kernels of a collection to a file. Raises CreationFailed and OSError; a former file then stays."""
    wanted = kernels.kernels
    parts = _kept(path, wanted.keys())
    missing: dict[int, PrimitiveDesc] = {id(pd): pd for key, (pd, _) in wanted.items() if key not in parts}
    compiled = len(wanted) - len(parts)
    cores = len(os.sched_getaffinity(0))
    compilers = CompilerPool(cores)
    try:
        with ThreadPoolExecutor(cores) as pool:
            created = {pool.submit(compilers.create, pd): number for number, pd in missing.items()}
            for done in as_completed(created):
                binaries = parse_entry(done.result()).binaries
                for key, (pd, number) in wanted.items():
                    if id(pd) == created[done]:
                        parts[key] = binaries[number]
                show(len(parts), len(wanted))
    finally:
        compilers.close()
    levels = dict.fromkeys(pd.target.isa for pd, _ in wanted.values())
    about = {"poolrt": VERSION, **toolchain("cpu"), "levels": ", ".join(levels)}
    size = write_prebuilt(path, {key.digest: part for key, part in parts.items()}, about)
    return Made(path, len(parts), compiled, size)


def _kept(path: str, keys: Iterable[Key]) -> dict[Key, bytes]:
    """Return the sound parts of a former file under these keys."""
    parts: dict[Key, bytes] = {}
    try:
        former = PrebuiltFile(path)
        for key in keys:
            part = former.read(key)
            if part is not None:
                parts[key] = part
    except (OSError, EntryCorrupt, PathRefused):
        pass  # nothing to keep, or nothing more: the rest is compiled
    return parts
