"""OpenCL platforms and devices, asked for in a child process.

A broken driver hangs, aborts or crashes whoever lists its devices, and PoCL hangs after a fork of a process that
has listed them. So the question is put by a fresh interpreter, with a time limit, whose death is only a finding.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Final

from .finding import Finding, ok, warn

_LIMIT_S: Final = 30.0
#: Printed before the answer: drivers write to standard output as they like.
_MARK: Final = "poolrt-opencl:"
_QUESTION: Final = f"""
import json
import pyopencl as cl
found = []
for platform in cl.get_platforms():
    try:
        names = [device.name.strip() for device in platform.get_devices()]
    except cl.Error:
        names = []
    found.append([platform.name.strip(), platform.version.strip(), names])
print({_MARK!r} + json.dumps(found), flush=True)
"""


def findings(limit_s: float = _LIMIT_S, question: str = _QUESTION) -> Iterator[Finding]:
    """List the OpenCL platforms and devices; a driver that does not answer within ``limit_s`` seconds is killed."""
    advice = "engine opencl cannot be used; engine cpu is not affected"
    try:
        child = subprocess.run(
            [sys.executable, "-c", question],
            capture_output=True,
            text=True,
            timeout=limit_s,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except subprocess.TimeoutExpired:
        yield warn("opencl", f"no answer in {limit_s:g} s: a driver hangs", advice)
        return
    answer = next((line for line in child.stdout.splitlines() if line.startswith(_MARK)), None)
    if answer is None:
        yield warn("opencl", _cause(child), advice)
        return
    platforms = json.loads(answer.removeprefix(_MARK))
    devices = sum(len(names) for _, _, names in platforms)
    if devices == 0:
        yield warn(
            "opencl", f"{len(platforms)} platforms, no device", f"{advice}; pip install 'pyopencl[pocl]' brings one"
        )
        return
    index = 0
    for platform, version, names in platforms:
        for name in names:
            yield ok(f"opencl:{index}", f"{name} ({platform}, {version})")
            index += 1


def _cause(child: subprocess.CompletedProcess[str]) -> str:
    if child.returncode < 0:
        return f"a driver crashed the asking process ({signal.Signals(-child.returncode).name})"
    lines = child.stderr.strip().splitlines()
    return lines[-1] if lines else f"the asking process ended with status {child.returncode}"
