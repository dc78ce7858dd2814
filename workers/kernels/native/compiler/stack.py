"""Where functions keep the vectors for which they have no register: in places of the stack that no page's end cuts in two.

The C convention promises a stack in steps of 16 bytes, and LLVM spills wider vectors into such places. A vector across the
end of a page takes some 30 cycles to be stored and read: depending on the caller's stack, one process in forty would run a
loop with such a vector two to four times longer, again and again.
"""

from __future__ import annotations

from typing import Final

import llvmlite.ir as ir

#: ISA level -> bytes of its widest register, if these are more than the convention's.
_WIDEST: Final = {"x86-64-v3": 32, "x86-64-v4": 64}


def align_stack(function: ir.Function) -> None:
    """Make a function begin with its stack in steps of the widest register of its module's ISA level."""
    function.attributes.alignstack = _WIDEST.get(getattr(function.module, "poolrt_isa", ""), 0)
