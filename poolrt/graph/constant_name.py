"""Names of constants in the files that processes of a node share: equal for equal bytes in one layout."""

from __future__ import annotations

from typing import Final

from poolrt.version import VERSION

#: Bytes of a constant from which on it is shared: a file of its own costs some 100 us.
LEAST_BYTES: Final = 1 << 20
#: Bytes of what `constant_source.describe_source` returns.
SOURCE_BYTES: Final = 32
#: The layout of constants that plans read as the graph has them.
ROW_MAJOR: Final = "row-major"


def name_constant(layout: str, source: bytes) -> str:
    """Return the name of a constant; ``layout`` is the digest of the reorder that writes it, or `ROW_MAJOR`."""
    from poolrt.cachestore.digests import sha256  # clients name none

    return sha256(repr((VERSION, layout, source)).encode()).hexdigest()
