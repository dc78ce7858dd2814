"""OpenCL devices, and whether each can build and run a kernel; checked in child processes.

A broken driver can hang, abort or crash the process that lists its devices, and PoCL hangs after a fork of such a
process. Each check therefore runs in a new interpreter with a time limit; a crash of it is only a finding.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, Final

from .finding import Finding, ok, warn

#: Begins the line with the answer, since drivers write to standard output too.
MARK: Final = "poolrt-opencl:"
_LIST: Final = f"""
import json
from poolrt.workers.engines.opencl import runtime
drivers = runtime()
devices = [[d.handle.name.strip(), d.handle.platform.name.strip(), d.handle.version.strip()] for d in drivers.devices]
print({MARK!r} + json.dumps([devices, list(drivers.refused)]), flush=True)
"""
#: Builds a kernel that no cache can hold, runs it, and reads its binary, as a creator does.
_TRY: Final = f"""
import os, sys
import numpy
from poolrt.workers.engines.opencl import OpenClEngine
engine = OpenClEngine(int(sys.argv[1]))
import pyopencl as cl
text = "__kernel void k(__global int *out) {{ out[get_global_id(0)] = %d; }}" % os.getpid()
program = cl.Program(engine.context, text).build(cache_dir=False)
out = cl.Buffer(engine.context, cl.mem_flags.READ_WRITE, 256)
program.k(engine.queue, (64,), (64,), out)
host = numpy.zeros(64, numpy.int32)
cl.enqueue_copy(engine.queue, host, out)
binaries = program.get_info(cl.program_info.BINARIES)
print({MARK!r} + ("1" if (host == os.getpid()).all() and binaries[0] else "0"), flush=True)
"""
_UNUSABLE: Final = "engine opencl cannot be used; engine cpu is not affected"


def findings(limit_s: float, list_code: str = _LIST, try_code: str = _TRY) -> Iterator[Finding]:
    """List the devices and try each; a child that does not answer within ``limit_s`` seconds is killed."""
    found, why = _ask(list_code, [], limit_s)
    if found is None:
        yield warn("opencl", why, _UNUSABLE)
        return
    devices, refused = found
    for reason in refused:
        yield warn("opencl", reason, "poolrt does not use this device")
    if not devices:
        yield warn("opencl", "no device", f"{_UNUSABLE}; pip install 'pyopencl[pocl]' brings one")
    for index, (name, platform, version) in enumerate(devices):
        works, why = _ask(try_code, [str(index)], limit_s)
        if works == 1:
            yield ok(f"opencl:{index}", f"{name} ({platform}, {version})")
        elif works is None:
            advice = _UNUSABLE
            if "linker" in why or '"ld"' in why:
                advice = "PoCL links with the system's linker: apt-get install gcc libc6-dev"
            yield warn(f"opencl:{index}", f"{name}: {why}", advice)
        else:
            yield warn(f"opencl:{index}", f"{name}: a test kernel returned a wrong result", _UNUSABLE)


def _ask(code: str, arguments: list[str], limit_s: float) -> tuple[Any, str]:
    """Return the answer of a new interpreter, or None and the reason for no answer."""
    command = [sys.executable, "-W", "ignore", "-c", code, *arguments]
    try:
        child = subprocess.run(
            command, capture_output=True, text=True, timeout=limit_s, stdin=subprocess.DEVNULL, check=False
        )
    except subprocess.TimeoutExpired:
        return None, f"no answer in {limit_s:g} s: a driver hangs"
    answer = next((line for line in child.stdout.splitlines() if line.startswith(MARK)), None)
    if answer is not None:
        return json.loads(answer.removeprefix(MARK)), ""
    said = [line for line in child.stderr.splitlines() if line.strip()]
    # A compiler's own "error:" lines say more than the exception after them.
    telling = [line for line in said if line.startswith("error:")] or said[-1:]
    if child.returncode < 0:
        crash = f"a driver crashed the test process ({signal.Signals(-child.returncode).name})"
        return None, f"{crash}: {telling[-1]}" if telling else crash
    return None, telling[-1] if telling else f"the test process exited with status {child.returncode}"
