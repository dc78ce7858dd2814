"""Seeded tensors that are the same on every machine and with every NumPy.

Only the raw stream of PCG64 is used, which NumPy promises to keep (NEP 19); its distributions may change. Each step
from there is exact or correctly rounded float32 arithmetic.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

SEED: Final = 20180712
#: Values that are computed at a time, an even number: their source stays in the processor's cache.
_BLOCK: Final = 1 << 16


def uniform(stream: int, shape: Sequence[int], low: float, high: float) -> NDArray[np.float32]:
    """Return float32 values between ``low`` and ``high``; each ``stream`` number has its own sequence."""
    count = math.prod(shape)
    generator = np.random.PCG64(np.random.SeedSequence((SEED, stream)))
    factor, offset = np.float32((high - low) / 2**24), np.float32(low)
    values = np.empty(count + count % 2, np.float32)
    for start in range(0, len(values), _BLOCK):
        block = values[start : start + _BLOCK]
        raw = generator.random_raw(len(block) // 2).astype("<u8", copy=False).view("<u4")
        # The upper 24 bits of each half are an integer that float32 holds exactly.
        np.multiply(raw >> 8, factor, out=block, dtype=np.float32, casting="unsafe")
        block += offset
    return values[:count].reshape(tuple(shape))


def spread(stream: int, shape: Sequence[int], deviation: float) -> NDArray[np.float32]:
    """Return float32 values around 0 with a standard deviation, uniformly distributed."""
    reach = math.sqrt(3.0) * deviation
    return uniform(stream, shape, -reach, reach)


def fingerprint(tensors: Iterable[tuple[str, NDArray[Any]]]) -> str:
    """Return a digest of the names, shapes, first and last values of tensors, to notice other ways of making them."""
    digest = hashlib.sha256()
    for name, tensor in tensors:
        flat = tensor.reshape(-1)
        digest.update(f"{name}{tensor.shape}".encode())
        digest.update(flat[:4].astype("<f4").tobytes() + flat[-4:].astype("<f4").tobytes())
    return digest.hexdigest()
