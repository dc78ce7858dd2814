"""Execution arguments of a primitive: their descriptors, the scratchpad's included, and the check of what users give."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from ..desc import Arg, MemoryDesc
from ..engines.engine import Engine
from ..implementations.primitive_desc import PrimitiveDesc

if TYPE_CHECKING:
    from .memory import Memory

#: The descriptor of an argument that a primitive does not have.
NO_MEMORY: Final = MemoryDesc((0,), "u8")


@lru_cache(maxsize=256)
def scratchpad_nbytes(pd: PrimitiveDesc) -> int:
    """Return the bytes of scratch memory that a primitive books."""
    return pd.program().scratchpad


def describe_arguments(pd: PrimitiveDesc) -> dict[int, MemoryDesc]:
    """Return the descriptor of every execution argument, the scratchpad included if the user provides it."""
    scratchpad = describe_scratchpad(pd)
    return {**pd.memories(), Arg.SCRATCHPAD: scratchpad} if scratchpad.nbytes else pd.memories()


def describe_scratchpad(pd: PrimitiveDesc) -> MemoryDesc:
    """Return the descriptor of scratch memory that the user provides; of no elements if the library provides it."""
    nbytes = scratchpad_nbytes(pd) if pd.attr.scratchpad_mode == "user" else 0
    return MemoryDesc((nbytes,), "u8") if nbytes else NO_MEMORY


def check_argument(arg: int, memory: Memory | None, desc: MemoryDesc, engine: Engine) -> Memory:
    """Return a memory. Raises ValueError if it is missing, has another descriptor or is not on the engine."""
    if memory is None:
        raise ValueError(f"argument {_numbered_name(arg)}: missing; expect {desc}")
    if memory.desc != desc:
        raise ValueError(f"argument {_numbered_name(arg)}: expect {desc}, got {memory.desc}")
    if memory.engine is not engine and not (memory.is_on_host and engine.kind == "cpu"):
        which = ", on another engine of the same device" if repr(memory.engine) == repr(engine) else ""
        raise ValueError(f"argument {_numbered_name(arg)}: expect memory on {engine}, got {memory}{which}")
    return memory


def _numbered_name(arg: int) -> str:
    """Return the name of an argument with its number."""
    known = {int(item): item.name for item in Arg}
    return f"{arg} ({known[arg]})" if arg in known else str(arg)
