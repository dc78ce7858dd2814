"""Make the file of prebuilt kernels: what an earlier file has under the same keys is kept, all else is compiled."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

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
    """Write the kernels of a collection to a file. Raises CreationFailed and OSError.

    Each kernel is written when it is compiled, beside all that a former file has: after an error, an interrupt or a kill,
    the next call compiles the rest. Only a file that is complete loses what the collection lacks.
    """
    wanted = {key.digest: found for key, found in kernels.kernels.items()}
    former = _sound_parts(path)
    parts = {digest: part for digest, part in former.items() if digest in wanted}
    missing: dict[int, PrimitiveDesc] = {id(pd): pd for digest, (pd, _) in wanted.items() if digest not in parts}
    compiled = len(wanted) - len(parts)
    levels = dict.fromkeys(pd.target.isa for pd, _ in wanted.values())
    about = {"poolrt": VERSION, **toolchain("cpu"), "levels": ", ".join(levels)}
    cores = len(os.sched_getaffinity(0))
    compilers, pool = CompilerPool(cores), ThreadPoolExecutor(cores)
    try:
        created = {pool.submit(compilers.create, pd): number for number, pd in missing.items()}
        for done in as_completed(created):
            binaries = parse_entry(done.result()).binaries
            for digest, (pd, number) in wanted.items():
                if id(pd) == created[done]:
                    parts[digest] = binaries[number]
            write_prebuilt(path, former | parts, about)
            show(len(parts), len(wanted))
    finally:
        # After an error or an interrupt, what has not begun is not compiled.
        pool.shutdown(cancel_futures=True)
        compilers.close()
    return Made(path, len(parts), compiled, write_prebuilt(path, parts, about))


def _sound_parts(path: str) -> dict[str, bytes]:
    """Return the parts of a former file up to the first that is damaged, by the digests of their keys."""
    parts: dict[str, bytes] = {}
    try:
        for digest, part in PrebuiltFile(path).parts():
            parts[digest] = part
    except (OSError, EntryCorrupt, PathRefused):
        pass  # nothing to keep, or nothing more: the rest is compiled
    return parts
