"""The inserter of reorders: brings a tensor to the engine, data type and layout that a step expects.

This is PaddlePaddle's data transform between the actual and the expected kernel type. Guarantees: a tensor that is as
expected is not reordered; each tensor is brought into each form once, however many steps expect it; constants are
reordered when the graph is loaded, not in every run.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from poolrt.workers.desc import Arg, MemoryDesc, PrimitiveAttr, Reorder
from poolrt.workers.desc.equivalence import same_bytes
from poolrt.workers.engines.target import Target
from poolrt.workers.implementations.primitive_desc import PrimitiveDesc, UnsupportedPrimitive, primitive_desc

from .plan_builder import PlanBuilder, Version

#: The engine through which tensors go from one device to another.
HOST = "cpu"


class LayoutInserter:
    """Adds reorders to the plan of a builder. ``targets`` has the target of each engine by name."""

    def __init__(self, builder: PlanBuilder, targets: Mapping[str, Target]) -> None:
        self._builder = builder
        self._targets = targets
        self._brought: dict[tuple[Version, str, MemoryDesc], Version] = {}

    def bring(self, version: Version, engine: str, wanted: MemoryDesc, name: str = "") -> Version:
        """Return a tensor in the layout and data type wanted, where an engine can read it.

        ``name`` is that of the graph's own reorder, if it has one here; others are named for the layouts or data types.
        Raises UnsupportedPrimitive if no engine that may reorder it has a reorder for it.
        """
        if same_bytes(version.desc, wanted) and self._builder.engine_of(version) in ("", engine):
            return Version(version.storage, wanted, version.start)
        once = self._builder.is_constant(version) and self._is_whole(version)
        key = (version, "" if once else engine, wanted)
        found = self._brought.get(key)
        if found is None:
            found = (
                self._reorder_constant(version, engine, wanted) if once else self._move(version, engine, wanted, name)
            )
            self._brought[key] = found
        return found

    def copy(self, version: Version, engine: str, name: str) -> Version:
        """Return a copy of a tensor in memory of its own; another engine than the one named may make it."""
        pd, where = self._choose(version.desc, version.desc, self._builder.engine_of(version), engine)
        return self._builder.add_step(name, pd, where, {Arg.SRC: self.bring(version, where, version.desc)})[Arg.DST]

    def _move(self, version: Version, engine: str, wanted: MemoryDesc, name: str) -> Version:
        """Reorder a tensor on the best engine; the reorder between engines comes before or after that."""
        home = self._builder.engine_of(version)
        if same_bytes(version.desc, wanted):
            if HOST not in (home, engine):
                version = self.bring(version, HOST, version.desc)
            return self._builder.add_cross_engine_reorder(version, engine)
        pd, where = self._choose(version.desc, wanted, home, engine)
        source = self.bring(version, where, version.desc)
        what = f"{version.desc.tag} to {wanted.tag}"
        if version.desc.dtype != wanted.dtype:
            what = f"{version.desc.dtype} to {wanted.dtype}"
        result = self._builder.add_step(name or f"reorder {what}", pd, where, {Arg.SRC: source})[Arg.DST]
        return self.bring(result, engine, wanted)

    def _reorder_constant(self, version: Version, engine: str, wanted: MemoryDesc) -> Version:
        raw = self._builder.constant_of(version)
        reorder = self._choose(version.desc, wanted, "", engine)
        return self._builder.add_constant(raw.value, raw.raw_nbytes, wanted, reorder)

    def _choose(self, src: MemoryDesc, dst: MemoryDesc, home: str, engine: str) -> tuple[PrimitiveDesc, str]:
        """Return a reorder and its engine: the tensor's own or its reader's, the host only if neither has a reorder."""
        refused = UnsupportedPrimitive("there is no engine")
        for references in (False, True):
            for place in dict.fromkeys((home or engine, engine)):
                try:
                    return _reorder(src, dst, self._targets[place], references), place
                except UnsupportedPrimitive as error:
                    refused = error
        if HOST in (home, engine):
            raise refused
        return _reorder(src, dst, self._targets[HOST], True), HOST

    def _is_whole(self, version: Version) -> bool:
        """Return whether a tensor is all of a constant in its first form, which can be reordered when it is loaded."""
        constant = self._builder.constant_of(version)
        return constant.reorder is None and version.start == 0 and version.desc.nbytes == constant.nbytes


@lru_cache(maxsize=512)
def _reorder(src: MemoryDesc, dst: MemoryDesc, target: Target, references: bool) -> PrimitiveDesc:
    """Return the reorder to use. Kept, with its key: the plans of a model for other sizes reorder the same weights."""
    return primitive_desc(Reorder(src, dst), PrimitiveAttr(), target, references)
