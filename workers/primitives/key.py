"""The key of a primitive: everything that its compiled form depends on, as named fields, and nothing else.

Left out on purpose: the engine's index and the host's name (an entry serves every device of one identity), process and
thread ids, addresses, and names of tensors. Versions are read from metadata folders, so that no compiler is imported.
"""

from __future__ import annotations

from typing import Final

from poolrt.cachestore import Key

from ..implementations.primitive_desc import PrimitiveDesc
from .sources import source_digest
from .toolchain import toolchain

#: Raise it when the framework, which is in no key, no longer reads the entries of before: their format, how arguments are
#: packed, which symbols the object loader resolves, how an OpenCL kernel takes numbers and memories.
SCHEMA: Final = 3


def primitive_key(pd: PrimitiveDesc) -> Key:
    """Return the key of a primitive descriptor, which keeps it."""
    key = pd.cached_key
    if key is None:
        key = _key(pd)
        object.__setattr__(pd, "cached_key", key)
    return key


def _key(pd: PrimitiveDesc) -> Key:
    kind = pd.target.engine_kind
    return Key(
        {
            "schema": SCHEMA,
            "primitive": pd.op.kind,
            "operation": pd.op.fields(),
            "attributes": pd.attr.fields(),
            "hint": tuple((arg, desc.fields()) for arg, desc in pd.hint),
            "implementation": pd.implementation.name,
            "source": source_digest(kind, pd.op.kind, pd.implementation),
            "nested": tuple(primitive_key(inner).digest for inner in pd.nested()),
            "target": pd.target.fields(),
            "toolchain": toolchain(kind),
        }
    )
