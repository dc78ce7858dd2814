"""Damaged code in a process of its own, which may crash: `python -m tests.workers.fuzzer object|entry FILE SEED COUNT`.

Prints how often each outcome was seen, as JSON. An error of another kind than the expected ones ends it with a traceback.
"""

from __future__ import annotations

import errno
import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgpack

from poolrt.cachestore import Key
from poolrt.cachestore.entry import EntryCodec, EntryMeta
from poolrt.cachestore.signing import SigningKey
from poolrt.workers.engines.cpu import CpuEngine
from poolrt.workers.engines.object_loader import ObjectError, load_object
from poolrt.workers.execution.native_binding import BindError, BoundPrimitive, RealizedPrimitive
from poolrt.workers.implementations.program import Launch
from poolrt.workers.memory.buffer import Buffer
from poolrt.workers.primitives.entry import MalformedEntry, parse_entry
from poolrt.workers.threadpools.jobs import Jobs

from ..mutations import mutated, replace_a_part

ROOT: Final = Path(__file__).resolve().parents[2]
#: Seconds for everything; a hang is what takes longer.
LIMIT_S: Final = 60.0
THREADS: Final = 2


def fuzz(kind: str, data: bytes, folder: Path, seed: int, count: int) -> dict[str, int]:
    """Run this program; return how often each outcome was seen. Fails the test that calls it where the process dies."""
    file = folder / "data"
    file.write_bytes(data)
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-m", "tests.workers.fuzzer", kind, str(file), str(seed), str(count)],
        cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"seed {seed}, exit status {done.returncode}:\n{done.stderr}"
    seen: dict[str, int] = json.loads(done.stdout)
    assert sum(seen.values()) == count
    return seen


def object_mapper(binary: bytes, chance: random.Random) -> Callable[[], object]:
    """Return what maps a damaged object, and runs nothing of it."""
    return lambda: load_object(mutated(binary, chance))


def entry_binder(data: bytes, chance: random.Random) -> Callable[[], object]:
    """Return what signs a damaged entry, and does with it what a worker does before its first run."""
    codec = EntryCodec(SigningKey(b"ours" * 8), "fuzz")
    key = Key({"primitive": "fuzz"})
    engine = CpuEngine()
    sound = RealizedPrimitive(parse_entry(data), engine)  # keeps an object that is not damaged from being mapped anew
    launches = [launch for launch in sound.entry.launches if isinstance(launch, Launch)]
    names = {value[0] for launch in launches for _, value in launch.args if isinstance(value, tuple)}

    def damaged() -> bytes:
        if chance.random() < 0.5:
            return mutated(data, chance)
        raw = msgpack.unpackb(data)
        replace_a_part(raw, chance)
        packed: bytes = msgpack.packb(raw)
        return packed

    def bind() -> None:
        blob = codec.pack(key.canonical, damaged(), EntryMeta(1, 0.0, 0.0, "host", "toolchain"))
        found = codec.open(blob, key)
        assert found is not None
        primitive = RealizedPrimitive(parse_entry(found.payload), engine)
        scratchpad = Buffer(primitive.entry.scratchpad)
        BoundPrimitive(primitive, dict.fromkeys(names), scratchpad.address, Jobs(THREADS))

    return bind


def main(kind: str, file: str, seed: str, count: str) -> None:
    """Do it `count` times."""
    step = {"object": object_mapper, "entry": entry_binder}[kind](Path(file).read_bytes(), random.Random(int(seed)))
    seen: Counter[str] = Counter()
    for _ in range(int(count)):
        try:
            step()
        except (MalformedEntry, ObjectError, BindError) as error:
            seen[type(error).__name__] += 1
        except OSError as error:
            # So much memory may have been booked that there is none.
            if error.errno != errno.ENOMEM:
                raise
            seen["no memory"] += 1
        else:
            seen["sound"] += 1
    print(json.dumps(seen))


if __name__ == "__main__":
    main(*sys.argv[1:])
