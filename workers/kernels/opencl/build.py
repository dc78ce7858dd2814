"""Build a kernel into a program binary that other processes can use without compiling anything.

PoCL compiles a kernel for each work-group size and grid class when it is first enqueued, and its binary holds the variants
compiled by then. So every declared variant is enqueued here, on the smallest problem (no ``items``, every other
size 1, scratch memory), before the binary is taken; else each consumer would compile again. Small grids go first: after
a large one PoCL reuses its code and never makes the small variant. Other drivers' binaries are complete anyway.

PoCL also compiles each kernel for work-groups of any size when a binary is taken, which takes as long as a declared variant.
No launch uses that, so a declared variant is put in its place.

Binaries are compressed, to about half: an entry is hashed each time it is read. pyopencl's own cache is bypassed: it
takes locks that are never recovered and reads pickles.
"""

from __future__ import annotations

import os
import warnings
import zlib
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from ...engines.opencl import EngineUnavailable, OpenClEngine, runtime
from ...engines.target import Target
from ..spec import KernelSpec
from .build_log import first_error
from .source import USER_CALL, kernel_source, user_source

if TYPE_CHECKING:
    import pyopencl

#: The same for every kernel; argument information lets this module call any kernel.
BUILD_OPTIONS: Final = ("-cl-std=CL1.2", "-cl-kernel-arg-info", "-w")
#: Grid class -> work-items along the first dimension, in groups or more; PoCL's limit is between 65472 and 65536.
GRIDS: Final = {"small": 1, "large": 65536}
#: In the version of the driver of which this is known; and the folder, in PoCL's cache, of functions for any work-group size.
_FOR_ANY_SIZE_IS_UNUSED: Final = "PoCL 3.0"
_ANY_SIZE: Final = "0-0-0"
#: In the name of PoCL's platform.
_POCL: Final = "Portable Computing Language"
#: Bytes of scratch memory: more than any kernel touches for sizes of 1.
_SCRATCH: Final = 1 << 16


class KernelBuildError(RuntimeError):
    """An OpenCL kernel does not compile. Raised by `compile_kernel`; carries the compiler's log."""


def compile_kernel(spec: KernelSpec, target: Target) -> bytes:
    """Return the compressed program binary of one kernel for a target that this process has a device for.

    Raises KernelBuildError with the compiler's log, of a user's kernel with its first error alone, or EngineUnavailable if no
    device has the target's identity.
    """
    engine = _engine(target)

    import pyopencl as cl

    program = cl.Program(engine.context, kernel_source(spec))
    params: dict[str, Any] = dict(spec.params)
    given: list[str] = params["options"].split() if spec.generator == USER_CALL else []
    # A user's version of the language replaces ours.
    ours = BUILD_OPTIONS[1:] if any(option.startswith("-cl-std") for option in given) else BUILD_OPTIONS
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", cl.CompilerWarning)
            program.build(options=[*ours, *given], devices=[engine.device], cache_dir=False)  # type: ignore[arg-type]
        kernel = cl.Kernel(program, spec.name)
        if spec.generator == USER_CALL:
            _refuse_shared_locals(engine, program, kernel, params["function"])
        for global_size, local_size in launch_variants(spec):
            _enqueue(engine, kernel, global_size, local_size, params.get("nbytes"))
        engine.queue.finish()
        if spec.generator != USER_CALL and _FOR_ANY_SIZE_IS_UNUSED in engine.device.platform.version:
            _put_in_place_of_any_size(spec.name)
    except cl.Error as error:
        if spec.generator != USER_CALL:
            raise KernelBuildError(f"OpenCL kernel {spec.generator} {params}: {error}") from error
        said = first_error(str(error), user_source(spec)) or error
        raise KernelBuildError(f"OpenCL kernel {params['function']}: {said}") from error
    binaries: Any = program.get_info(cl.program_info.BINARIES)
    return zlib.compress(binaries[0])


def _refuse_shared_locals(
    engine: OpenClEngine, program: pyopencl.Program, kernel: pyopencl.Kernel, function: str
) -> None:
    """Raise KernelBuildError if PoCL's threads would share the ``__local`` variables of a kernel that another one calls.

    PoCL does not count them as the other one's then. A kernel that `source` has renamed is not found.
    """
    import pyopencl as cl

    def local_bytes(of: pyopencl.Kernel) -> int:
        return int(of.get_work_group_info(cl.kernel_work_group_info.LOCAL_MEM_SIZE, engine.device))

    for called in program.all_kernels() if engine.device.platform.name == _POCL else ():
        if called.function_name == function and local_bytes(called) > local_bytes(kernel):
            raise KernelBuildError(
                f"OpenCL kernel {function}: on PoCL, work-groups would share its __local variables; "
                f"declare it with a parenthesis behind its name: __kernel void {function}(...)"
            )


def launch_variants(spec: KernelSpec) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return (global size, local size) of one launch for each variant that a spec declares, small grids first.

    Raises ValueError if the spec declares none or an unknown grid class.
    """
    params: dict[str, Any] = dict(spec.params)
    if spec.generator == USER_CALL:
        return [(params["global_size"], params["local"])]
    local, grids = params.get("local"), params.get("grids", ("small",))
    if not isinstance(local, tuple) or not local or not set(grids) <= GRIDS.keys():
        raise ValueError(
            f"kernel {spec.generator}: declare local sizes and grids of {', '.join(GRIDS)}, got {local}, {grids}"
        )
    return [((max(local[0], least), *local[1:]), local) for grid, least in GRIDS.items() if grid in grids]


def _put_in_place_of_any_size(kernel: str) -> None:
    """Put a declared variant where PoCL looks for a kernel's function for any work-group size, in all programs that lack one.

    PoCL finds a launch's variant by the name of its folder. It compiles one that it does not find, if its function for any size
    is there, too. So what is put here is never called.
    """
    for folder in runtime().cache.glob(f"*/*/{kernel}"):
        place = folder / _ANY_SIZE / f"{kernel}.so"
        variant = next(folder.glob(f"*/{kernel}.so"), None)
        if variant is not None and not place.exists():
            place.parent.mkdir(exist_ok=True)
            with suppress(FileExistsError):  # another thread's
                os.link(variant, place)


@lru_cache(maxsize=4)
def _engine(target: Target) -> OpenClEngine:
    for index, device in enumerate(runtime().devices):
        if device.target == target:
            return OpenClEngine(index)
    raise EngineUnavailable(f"no OpenCL device of this process has the identity {dict(target.device)}")


def _enqueue(
    engine: OpenClEngine,
    kernel: pyopencl.Kernel,
    global_size: tuple[int, ...],
    local_size: tuple[int, ...],
    nbytes: tuple[int, ...] | None,
) -> None:
    """Enqueue a launch on zeros: on scratch memory, or on buffers of ``nbytes``, which a user's kernel may read whole."""
    import numpy
    import pyopencl as cl

    def zeros(size: int) -> cl.Buffer:
        buffer = cl.Buffer(engine.context, cl.mem_flags.READ_WRITE, size)
        cl.enqueue_fill_buffer(engine.queue, buffer, b"\0", 0, size)
        return buffer

    scratch = [zeros(_SCRATCH)] if nbytes is None else [zeros(max(size, 1)) for size in nbytes]
    info = cl.kernel_arg_info
    for index in range(kernel.num_args):
        kind, name = (str(kernel.get_arg_info(index, field)) for field in (info.TYPE_NAME, info.NAME))
        if kind.endswith("*"):
            value: Any = scratch[0 if nbytes is None else index // 2]
        elif kind == "float":
            value = numpy.float32(1.0)
        else:
            value = numpy.int64(not (name.endswith("_offset") or name == "items"))
        kernel.set_arg(index, value)
    cl.enqueue_nd_range_kernel(engine.queue, kernel, global_size, local_size)
