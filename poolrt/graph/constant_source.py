"""What a constant is made from, as a digest: a place in a file that has not changed, or else the bytes of its array."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .constant import Constant, turn_as_stored
from .mapped_file import file_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Of a file's data, this many bytes are read in each piece of this size, to notice changes that the file's times do not show.
_SAMPLE: Final = 4096
_PIECE: Final = 1 << 20


def describe_source(constant: Constant) -> bytes:
    """Return a digest of all that determines the values of a constant and how its array has them."""
    array, scale = constant.array, constant.scale
    scaled = "" if scale is None else hashlib.sha256(scale.tobytes()).hexdigest()
    fields = (constant.dtype, array.dtype.str, array.shape, scaled, *_elements(array))
    return hashlib.sha256(repr(fields).encode()).digest()


def _elements(array: NDArray[Any]) -> tuple[Any, ...]:
    """Return what distinguishes the elements of an array."""
    file, stored = file_of(array), turn_as_stored(array)[0]
    if file is None or not stored.flags.c_contiguous or not file.is_settled():
        return "bytes", hashlib.sha256(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data).hexdigest()
    content, samples = stored.reshape(-1).view(np.uint8), hashlib.sha256()
    for start in (*range(0, len(content), _PIECE), max(len(content) - _SAMPLE, 0)):
        samples.update(content[start : start + _SAMPLE].data)
    file.leave(content)
    return "file", file.identity, file.place(stored), array.strides, samples.hexdigest()
