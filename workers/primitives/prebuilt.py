"""Entries of prebuilt kernels: put together in the process that needs one, in less than a millisecond, without a compiler.

The parts in the store's prebuilt tier are native objects under the identities of their kernels (see `kernel_identity`). A kernel
whose sources or compiler have changed has another identity, and is compiled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from poolrt.cachestore import Key

from ..implementations.primitive_desc import PrimitiveDesc
from .derivation import identities_of, pack_program

if TYPE_CHECKING:
    from poolrt.cachestore import CacheStore

#: Operations with code of users: no package has it.
_OF_USERS: Final = ("call",)


def part_key(identity: bytes) -> Key:
    """Return the key of a kernel among prebuilt parts, by its identity."""
    return Key({"kernel": identity})


def can_be_prebuilt(pd: PrimitiveDesc) -> bool:
    """Return whether the kernels of a primitive could be prebuilt: native ones that are ours."""
    return pd.target.engine_kind == "cpu" and pd.op.kind not in _OF_USERS


def prebuilt_entry(store: CacheStore, pd: PrimitiveDesc) -> bytes | None:
    """Return the entry of a primitive whose kernels are all prebuilt; None for any other, which a creator has to make.

    It is equal to the one that a creator would make.
    """
    if not can_be_prebuilt(pd) or not store.prebuilt.is_there():
        return None
    try:
        program = pd.program()
        identities = identities_of(pd, program)
        binaries = list(_binaries(store, identities))
        return pack_program(pd, program, identities, binaries) if len(binaries) == len(identities) else None
    except Exception:  # noqa: BLE001 - the creator raises the same error, and all that wait for the entry get it
        return None


def _binaries(store: CacheStore, identities: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the native objects of kernels up to the first that is not prebuilt."""
    for identity in identities:
        binary = store.prebuilt.get(part_key(identity))
        if binary is None:
            return
        yield binary
