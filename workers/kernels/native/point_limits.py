"""The zero points that copies of integers subtract themselves."""

from __future__ import annotations

from typing import Final

#: The zero points that any 8-bit integer may have; numbers less these have 10 bits.
LEAST_POINT: Final = -128
MOST_POINT: Final = 255
