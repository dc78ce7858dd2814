"""The switch between kernels: brings a tensor to the engine, data type and layout that a step expects, once for all.

Guarantees: nothing is inserted where a tensor lies as expected already; each tensor is brought into each form once,
however many steps want it; constants are brought there when the graph is loaded, not in every run.
"""

from __future__ import annotations

from collections.abc import Mapping

from poolrt.workers.desc import Arg, MemoryDesc, PrimitiveAttr, Reorder
from poolrt.workers.desc.equivalence import same_bytes
from poolrt.workers.engines.target import Target
from poolrt.workers.implementations.primitive_desc import PrimitiveDesc, UnsupportedPrimitive, primitive_desc

from .plan_builder import PlanBuilder, Version

#: The engine through which tensors go from one device to another.
HOST = "cpu"


class LayoutInserter:
    """Adds to a draft what brings tensors from one form into another. ``targets`` are those of the engines, by name."""

    def __init__(self, draft: PlanBuilder, targets: Mapping[str, Target]) -> None:
        self._draft = draft
        self._targets = targets
        self._brought: dict[tuple[Version, str, MemoryDesc], Version] = {}

    def bring(self, version: Version, engine: str, wanted: MemoryDesc) -> Version:
        """Return a tensor as an engine reads it in the layout and data type wanted.

        Raises UnsupportedPrimitive where no engine at hand has a reorder for it.
        """
        if same_bytes(version.desc, wanted) and self._draft.home(version) in ("", engine):
            return Version(version.storage, wanted, version.start)
        lasting = self._draft.is_constant(version) and self._is_whole(version)
        key = (version, "" if lasting else engine, wanted)
        found = self._brought.get(key)
        if found is None:
            found = self._constant(version, engine, wanted) if lasting else self._moved(version, engine, wanted)
            self._brought[key] = found
        return found

    def copied(self, version: Version, engine: str, name: str) -> Version:
        """Return a copy of a tensor in memory of its own; it may be made elsewhere than on the engine named."""
        pd, where = self._reorder(version.desc, version.desc, self._draft.home(version), engine)
        return self._draft.step(name, pd, where, {Arg.SRC: self.bring(version, where, version.desc)})[Arg.DST]

    def _moved(self, version: Version, engine: str, wanted: MemoryDesc) -> Version:
        """Reorder a tensor where that is done best, and let it cross before or after."""
        if same_bytes(version.desc, wanted):
            return self._crossed(version, engine)
        pd, where = self._reorder(version.desc, wanted, self._draft.home(version), engine)
        source = self.bring(version, where, version.desc)
        name = f"{version.desc.tag} to {wanted.tag}"
        if version.desc.dtype != wanted.dtype:
            name = f"{version.desc.dtype} to {wanted.dtype}"
        result = self._draft.step(f"reorder {name}", pd, where, {Arg.SRC: source})[Arg.DST]
        return self.bring(result, engine, wanted)

    def _crossed(self, version: Version, engine: str) -> Version:
        home = self._draft.home(version)
        if HOST not in (home, engine):
            version = self.bring(version, HOST, version.desc)
        return self._draft.cross(version, engine)

    def _constant(self, version: Version, engine: str, wanted: MemoryDesc) -> Version:
        pd, where = self._reorder(version.desc, wanted, "", engine)
        given = self._draft.given(version)
        return self._draft.constant(given.value, given.raw_nbytes, wanted, (pd, where))

    def _reorder(self, src: MemoryDesc, dst: MemoryDesc, home: str, engine: str) -> tuple[PrimitiveDesc, str]:
        """Return the reorder to use and its engine: the tensor's own or its reader's, the host only where neither has one."""
        refused = UnsupportedPrimitive("there is no engine")
        for references in (False, True):
            for place in dict.fromkeys((home or engine, engine)):
                try:
                    return primitive_desc(Reorder(src, dst), PrimitiveAttr(), self._targets[place], references), place
                except UnsupportedPrimitive as error:
                    refused = error
        if HOST in (home, engine):
            raise refused
        return primitive_desc(Reorder(src, dst), PrimitiveAttr(), self._targets[HOST]), HOST

    def _is_whole(self, version: Version) -> bool:
        """Return whether a constant is as it was given, so that it can be reordered once for all."""
        given = self._draft.given(version)
        return given.reorder is None and version.start == 0 and version.desc.nbytes == given.nbytes
