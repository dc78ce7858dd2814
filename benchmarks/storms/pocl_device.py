"""PoCL's device for programs that use pyopencl alone, with the processor's name that poolrt gives it too."""

from __future__ import annotations

import pyopencl as cl

from poolrt.workers.engines.opencl_identity import processor_flags
from poolrt.workers.engines.pocl import PLATFORM, is_wrong, name_processor, processor_name


def pocl_device() -> tuple[cl.Device, str | None]:
    """Return the device and the name that its processor got, if it needed one. Raises LookupError without PoCL."""
    devices = [
        device for platform in cl.get_platforms() if platform.name == PLATFORM for device in platform.get_devices()
    ]
    if not devices:
        raise LookupError("there is no PoCL")
    found = devices[0].version.rstrip().rpartition("-")[2]
    if not is_wrong(found, processor_flags()):
        return devices[0], None
    # Without it PoCL compiles nothing on this processor.
    processor = processor_name(processor_flags())
    name_processor(devices[0].int_ptr, found, processor or "")
    return devices[0], processor
