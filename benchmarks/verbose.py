"""What verbose costs: an execution and a hit in the primitive cache with it off, beside the same without any of its code.

The rivals are poolrt's own functions, compiled from their source without the lines that ask for verbose. One of them runs
twice, which shows how far apart two equals come out on this machine.
"""

from __future__ import annotations

import inspect
import os
import sys
import tempfile
import textwrap
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

sys.path.insert(0, os.path.dirname(__file__))

from measure import alternate, arguments, record, seconds

from poolrt import Eltwise, Engine, Memory, MemoryDesc, Stream
from poolrt.cachestore import CacheStore
from poolrt.workers import set_verbose
from poolrt.workers.execution.native_execution import CpuExecution
from poolrt.workers.execution.primitive import Primitive
from poolrt.workers.primitives.provider import PrimitiveProvider

if TYPE_CHECKING:
    from poolrt.workers.execution.native_binding import RealizedPrimitive

#: Many short turns: each is over before another process takes the core, as a rule.
ROUNDS: Final = 400
REPEAT: Final = 50

_ASKED_FOR_LINES: Final = ", self._described() if engine.verbose.executes else None"
_TIMED: Final = """\
    if begin:
        engine.verbose.created(self._described(), self.source, engine.verbose.now() - begin)
"""


def without(function: Callable[..., Any], *parts: tuple[str, str]) -> Callable[..., Any]:
    """Return a function compiled from another's source with parts of that replaced. Raises ValueError where one is not there."""
    source = textwrap.dedent(inspect.getsource(function))
    for old, new in parts:
        if old not in source:
            raise ValueError(f"{function.__qualname__} has changed: there is no {old!r} in it")
        source = source.replace(old, new)
    names: dict[str, Any] = {}
    exec(compile(source, function.__code__.co_filename, "exec"), function.__globals__, names)
    made: Callable[..., Any] = names[function.__name__]
    return made


class BareExecution(CpuExecution):
    """An execution that knows no lines."""

    execute = without(
        CpuExecution.execute,
        ("stream.is_sequential and text is None", "stream.is_sequential"),
        ("regions if text is None else stamp(regions, text, stream.pool)", "regions"),
    )


class BarePrimitive(Primitive):
    """A primitive that knows no lines."""

    __init__ = without(  # type: ignore[assignment]
        Primitive.__init__,
        ("    begin = engine.verbose.now() if engine.verbose.creates else 0\n", ""),
        (_TIMED, ""),
    )
    execute = without(Primitive.execute, (_ASKED_FOR_LINES, ""))


def main() -> None:
    """Print medians and ratios."""
    with tempfile.TemporaryDirectory() as home:
        store = CacheStore.connect(home=home, url=f"unix://{home}/none.sock")
        engine, desc = Engine("cpu"), MemoryDesc((16,), "f32")
        pd, cache = Eltwise.PrimitiveDesc(engine, desc, desc, "relu").pd, PrimitiveProvider(4, store)
        args, stream = {1: Memory(desc, engine), 17: Memory(desc, engine)}, Stream(engine)
        timed, bare, again = (
            Primitive(pd, engine, cache),
            BarePrimitive(pd, engine, cache),
            BarePrimitive(pd, engine, cache),
        )
        for primitive in (bare, again):
            bare_execution = BareExecution(cast("RealizedPrimitive", primitive.resources.get(primitive._cached)))
            vars(primitive)["_execution"] = bare_execution
        set_verbose(0)
        lines = [
            *compared(
                "relu of 16 values, executed",
                lambda: timed.execute(stream, args),
                lambda: bare.execute(stream, args),
                lambda: again.execute(stream, args),
            ),
            *compared(
                "hit in the primitive cache",
                lambda: Primitive(pd, engine, cache),
                lambda: BarePrimitive(pd, engine, cache),
                lambda: BarePrimitive(pd, engine, cache),
            ),
            f"relu of 16 values, executed with lines to {os.devnull}: {1e6 * with_lines(timed, stream, args):.2f} us",
        ]
        store.close()
    record("Verbose, off", lines)


def compared(
    what: str, off: Callable[[], object], bare: Callable[[], object], again: Callable[[], object]
) -> list[str]:
    """Return lines about a call with verbose off, and two equals without it."""
    calls = {"off": off, "bare": bare, "again": again}
    found = alternate({name: lambda call=call: settled(call) for name, call in calls.items()}, ROUNDS)  # type: ignore[misc]
    return [
        f"{what}: off {1e6 * found['off']:.3f} us, without verbose {1e6 * found['bare']:.3f} us, "
        f"ratio {found['off'] / found['bare']:.3f}; of two without {found['again'] / found['bare']:.3f}"
    ]


def settled(call: Callable[[], object]) -> float:
    """Return the seconds of a call once the interpreter has fitted to it what it shares with the call before."""
    seconds(call, REPEAT)
    return seconds(call, REPEAT)


def with_lines(primitive: Primitive, stream: Stream, args: dict[int, Memory]) -> float:
    """Return the seconds of an execution whose line goes nowhere."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        set_verbose("profile_exec")
        return seconds(lambda: primitive.execute(stream, args), ROUNDS)
    finally:
        set_verbose(0)
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


if __name__ == "__main__":
    arguments(__doc__)
    main()
