"""OpenCL devices of this process, and the engine that owns a context and a queue on one of them.

Drivers start once in a process, on first use, and read their settings then: the first caller decides the number of threads.
A process forked from one that has used OpenCL must not use it, because PoCL hangs; `runtime` raises an error instead.
"""

from __future__ import annotations

import os
import threading
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from poolrt.cachestore.deferred_dataclass import dataclass

from ..verbose.output import verbose
from .opencl_drivers import announce_drivers
from .opencl_identity import device_identity, processor_flags
from .pocl import PLATFORM as POCL
from .pocl import is_wrong, private_cache, processor_names
from .realized import Realized
from .target import Target

if TYPE_CHECKING:
    import pyopencl

#: The wrapper's setting; it is read when the wrapper is imported.
_NO_CACHE: Final = "PYOPENCL_NO_CACHE"


class EngineUnavailable(RuntimeError):
    """There is no such OpenCL engine in this process. Names the devices found and why others were left out."""


@dataclass(frozen=True, slots=True)
class Device:
    """A usable device: the driver's handle and the target that its binaries are made for."""

    handle: pyopencl.Device
    target: Target


@dataclass(frozen=True, slots=True)
class Runtime:
    """The drivers of one process: usable devices in a stable order, and the reasons why others were refused."""

    process: int
    threads: int
    cache: Path
    devices: tuple[Device, ...]
    refused: tuple[str, ...]


def runtime(threads: int = 1) -> Runtime:
    """Return the drivers of this process; the first call starts them, its CPU devices with ``threads`` threads.

    Raises EngineUnavailable in a process forked from one that had started them.
    """
    started = _process().start(max(1, threads))
    if started.process != os.getpid():
        raise EngineUnavailable(
            f"process {os.getpid()} was forked from a process that uses OpenCL: start it with spawn or forkserver"
        )
    return started


def count() -> int:
    """Return the number of usable OpenCL devices, 0 without a driver."""
    return len(runtime().devices)


def opencl_target(index: int = 0) -> Target:
    """Return the target of device ``index``. Raises EngineUnavailable if there is no such device."""
    return _device(runtime(), index).target


class OpenClEngine:
    """One device with a context and an in-order queue of its own; realizes each program binary once.

    Unused programs are released, except the ``kept`` last used ones.
    """

    def __init__(self, index: int = 0, threads: int = 1, kept: int = 0) -> None:
        device = _device(runtime(threads), index)

        import pyopencl as cl

        self.target = device.target
        self.device = device.handle
        self.context = cl.Context([device.handle])
        self.queue = self.new_queue(profiling=verbose().executes)
        #: Whether the device works on host memory, None before the first trial: see `shares_host_memory`.
        self.shares_memory: bool | None = None
        self._programs: Realized[pyopencl.Program] = Realized(partial(_realize, self.context, self.device), kept)

    def new_queue(self, profiling: bool = False) -> pyopencl.CommandQueue:
        """Return another in-order queue on the device; with ``profiling`` its events record their times."""
        import pyopencl as cl

        if profiling:
            return cl.CommandQueue(self.context, self.device, cl.command_queue_properties.PROFILING_ENABLE)
        return cl.CommandQueue(self.context, self.device)

    def realize(self, binary: bytes) -> pyopencl.Program:
        """Return the program of a binary made for this engine's target. Raises RealizeError if the driver refuses it."""
        return self._programs.get(binary)


def _realize(context: pyopencl.Context, device: pyopencl.Device, binary: bytes) -> pyopencl.Program:
    from .opencl_program import realize_program

    return realize_program(context, device, binary)


class _Process:
    """Holds the one `Runtime` of a process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._started: Runtime | None = None

    def start(self, threads: int) -> Runtime:
        with self._lock:
            if self._started is None:
                os.environ["POCL_MAX_PTHREAD_COUNT"] = os.environ["CL_CONFIG_CPU_TBB_NUM_WORKERS"] = str(threads)
                cache = private_cache()
                os.environ["POCL_CACHE_DIR"] = str(cache)
                announce_drivers(cache / "vendors")
                _import_wrapper()
                self._started = Runtime(os.getpid(), threads, cache, *_devices())
            return self._started


@lru_cache(maxsize=1)
def _process() -> _Process:
    return _Process()


def _import_wrapper() -> None:
    """Import pyopencl without its cache: it would unpickle the code that calls kernels from a folder of the user.

    Files there are not authenticated and would be executed. If the caller has imported pyopencl before, its setting stays.
    """
    before = os.environ.get(_NO_CACHE)
    os.environ[_NO_CACHE] = "1"
    try:
        import pyopencl  # noqa: F401
    finally:
        if before is None:
            del os.environ[_NO_CACHE]
        else:
            os.environ[_NO_CACHE] = before


def _devices() -> tuple[tuple[Device, ...], tuple[str, ...]]:
    import pyopencl as cl

    found: list[Device] = []
    refused: list[str] = []
    try:
        platforms = cl.get_platforms()
    except cl.Error as error:  # the loader raises this if there is no platform
        return (), (str(error),)
    for platform in sorted(platforms, key=lambda p: (p.name, p.vendor, p.version)):
        try:
            handles = platform.get_devices()
        except cl.Error as error:
            refused.append(f"{platform.name}: {error}")
            continue
        if not handles:
            refused.append(f"{platform.name}: no device")
        for handle in handles:
            try:
                found.append(_usable(handle))
            except EngineUnavailable as error:
                refused.append(f"{handle.name.strip()} ({platform.name}): {error}")
    return tuple(found), tuple(refused)


def device_target(handle: pyopencl.Device) -> Target:
    """Return the target of any device of this process, also one that `runtime` did not start.

    A PoCL device whose processor has no right name in its LLVM gets one. Such a name is part of the target.
    """
    return Target("opencl", "opencl", device_identity(handle, given_processor(handle)[1]))


def given_processor(handle: pyopencl.Device) -> tuple[bool, str | None]:
    """Return whether LLVM's name for a device's processor is wrong, and the name that the device got in its place."""
    found, flags = handle.version.rstrip().rpartition("-")[2], processor_flags()
    if handle.platform.name != POCL or not is_wrong(found, flags):
        return False, None
    return True, processor_names().give(handle.int_ptr, found, flags)


def _usable(handle: pyopencl.Device) -> Device:
    if not handle.available or not handle.compiler_available:
        raise EngineUnavailable("the device or its compiler is not available")
    wrong, processor = given_processor(handle)
    if wrong and processor is None:
        _try_compiler(handle)
    return Device(handle, Target("opencl", "opencl", device_identity(handle, processor)))


def _try_compiler(handle: pyopencl.Device) -> None:
    """Raise EngineUnavailable if a device cannot compile an empty kernel."""
    import pyopencl as cl

    try:
        cl.Program(cl.Context([handle]), "__kernel void nothing(void) {}").build(cache_dir=False)  # type: ignore[arg-type]
    except cl.Error as error:
        raise EngineUnavailable(f"its compiler does not know the processor: {error}") from error


def _device(drivers: Runtime, index: int) -> Device:
    if 0 <= index < len(drivers.devices):
        return drivers.devices[index]
    names = [f"opencl:{i} {dict(d.target.device)['name']}" for i, d in enumerate(drivers.devices)]
    refused = f" (left out: {'; '.join(drivers.refused)})" if drivers.refused else ""
    if names:
        raise EngineUnavailable(f"there is no engine opencl:{index}; there is {', '.join(names)}{refused}")
    raise EngineUnavailable(
        f"there is no OpenCL device{refused}; install a driver, such as pip install 'pyopencl[pocl]', and see poolrt doctor"
    )
