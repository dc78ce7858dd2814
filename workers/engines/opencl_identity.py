"""The identity of an OpenCL device: the named fields that its binaries depend on, the same in all processes and like hosts.

Ordinals, host names, addresses and the number of threads are left out: a binary serves any device with these fields.
Some drivers' versions do not name the instruction set; if the host is the device, its features are therefore a field.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Final

from .pocl import PLATFORM as POCL

if TYPE_CHECKING:
    import pyopencl

#: The drivers' own variables that change the code they generate.
CODE_VARIABLES: Final = (
    "CL_CONFIG_CPU_EXPENSIVE_MEM_OPT",
    "CL_CONFIG_CPU_RT_LOOP_UNROLL_FACTOR",
    "CL_CONFIG_CPU_TARGET_ARCH",
    "CL_CONFIG_CPU_VECTORIZER_MODE",
    "CL_CONFIG_USE_FAST_RELAXED_MATH",
    "POCL_BINARY_SPECIALIZE_WG",
    "POCL_EXTRA_BUILD_FLAGS",
    "POCL_WILOOPS_MAX_UNROLL_COUNT",
    "POCL_WORK_GROUP_METHOD",
    "POCL_WORK_GROUP_SPECIALIZATION",
)
_TYPES: Final = ("CPU", "GPU", "ACCELERATOR")
#: CL_DEVICE_UUID_KHR, which pyopencl does not name.
_DEVICE_UUID: Final = 0x106A


def device_identity(
    device: pyopencl.Device, processor: str | None, environ: Mapping[str, str] | None = None
) -> tuple[tuple[str, str], ...]:
    """Return the named fields of a device; ``processor`` is the name that a PoCL device was given, if it was wrong."""
    import pyopencl as cl

    variables = os.environ if environ is None else environ
    platform = device.platform
    fields = {
        "platform": platform.name,
        "platform_vendor": platform.vendor,
        "platform_version": platform.version,
        "driver": _driver(platform.int_ptr),
        "name": device.name,
        "vendor": device.vendor,
        "version": device.version,
        "driver_version": device.driver_version,
        "type": next((name for name in _TYPES if device.type & getattr(cl.device_type, name)), "OTHER"),
        "uuid": _uuid(device),
        "vector_width": str(device.native_vector_width_float),
        "fp64": str("cl_khr_fp64" in device.extensions.split()),
        "host_unified": str(bool(device.host_unified_memory)),
    }
    if device.type & cl.device_type.CPU:
        fields["processor_features"] = hashlib.sha256(" ".join(sorted(processor_flags())).encode()).hexdigest()
    if processor is not None:
        fields["processor"] = processor
    fields |= {name: variables[name] for name in CODE_VARIABLES if name in variables}
    return tuple(sorted((name, value.strip()) for name, value in fields.items()))


@lru_cache(maxsize=1)
def processor_flags() -> frozenset[str]:
    """Return the features of the host's processor as /proc/cpuinfo names them."""
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as lines:
        for line in lines:
            if line.startswith(("flags", "Features")):
                return frozenset(line.partition(":")[2].split())
    return frozenset()


def _uuid(device: pyopencl.Device) -> str:
    """Return the device's UUID, empty for PoCL and other drivers that have none."""
    if device.platform.name == POCL:
        return ""
    ask = ctypes.CDLL(import_module("pyopencl._cl").__file__).clGetDeviceInfo
    ask.argtypes = (ctypes.c_void_p, ctypes.c_uint, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p)
    value = (ctypes.c_ubyte * 16)()
    status = ask(device.int_ptr, _DEVICE_UUID, 16, value, None)
    return bytes(value).hex() if status == 0 else ""


def _driver(platform: int) -> str:
    """Return the name and size of the library whose functions an ICD platform's leading table points to."""
    table = ctypes.c_uint64.from_address(platform).value
    function = ctypes.c_uint64.from_address(table).value
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        for line in maps:
            span, _, rest = line.partition(" ")
            low, _, high = span.partition("-")
            if int(low, 16) <= function < int(high, 16):
                path = rest.split(maxsplit=4)[-1].strip()
                return f"{os.path.basename(path)}:{os.stat(path).st_size}" if path.startswith("/") else ""
    return ""
