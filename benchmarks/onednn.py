"""oneDNN through ctypes, as much of it as benchmarks need: f32 convolutions, products and an eltwise on its CPU engine.

Functions are looked up and typed once and dimensions are C arrays from the start, so that little but oneDNN is timed.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from ctypes import byref
from importlib.metadata import PackageNotFoundError, distribution
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

WHEEL: Final = "onednn-cpu-gomp"
# Numbers of oneDNN's dnnl_types.h, version 3.
CPU, IN_ORDER, F32, ANY, ROW_MAJOR = 1, 1, 3, 1, 2
FORWARD_INFERENCE, DIRECT, RELU, SRC, DST, WEIGHTS, WEIGHTS_DESC = 96, 1, 0x20, 1, 17, 33, 131
#: Asks for memory of oneDNN's own.
ALLOCATE: Final = ctypes.c_void_p(-1)

Handle = ctypes.c_void_p
_int, _float, _out, _dims = ctypes.c_int, ctypes.c_float, ctypes.POINTER(Handle), ctypes.POINTER(ctypes.c_int64)


class Argument(ctypes.Structure):
    """An argument of an execution."""

    _fields_ = (("number", _int), ("memory", Handle))


_TYPES: Final[dict[str, tuple[Any, ...]]] = {
    "engine_create": (_out, _int, ctypes.c_size_t),
    "stream_create": (_out, Handle, ctypes.c_uint),
    "stream_wait": (Handle,),
    "memory_desc_create_with_tag": (_out, _int, _dims, _int, _int),
    "memory_desc_create_with_strides": (_out, _int, _dims, _int, _dims),
    "memory_desc_destroy": (Handle,),
    "memory_create": (_out, Handle, Handle, Handle),
    "memory_get_data_handle": (Handle, _out),
    "primitive_attr_create": (_out,),
    "primitive_attr_set_post_ops": (Handle, Handle),
    "primitive_attr_destroy": (Handle,),
    "post_ops_create": (_out,),
    "post_ops_append_eltwise": (Handle, _int, _float, _float),
    "post_ops_destroy": (Handle,),
    "convolution_forward_primitive_desc_create": (
        _out, Handle, _int, _int, Handle, Handle, Handle, Handle, _dims, _dims, _dims, _dims, Handle,
    ),
    "eltwise_forward_primitive_desc_create": (_out, Handle, _int, _int, Handle, Handle, _float, _float, Handle),
    "matmul_primitive_desc_create": (_out, Handle, Handle, Handle, Handle, Handle, Handle),
    "reorder_primitive_desc_create": (_out, Handle, Handle, Handle, Handle, Handle),
    "primitive_desc_destroy": (Handle,),
    "primitive_create": (_out, Handle),
    "primitive_execute": (Handle, Handle, _int, ctypes.POINTER(Argument)),
    "primitive_destroy": (Handle,),
}  # fmt: skip


class OneDnn:
    """The library, its functions typed, with an engine and a stream of so many threads.

    Raises SystemExit, saying what to do, where the wheel is missing or does not load.
    """

    def __init__(self, threads: int = 1) -> None:
        # Read when libgomp is loaded.
        os.environ["OMP_NUM_THREADS"] = str(threads)
        self.library = _library()
        for name, types in _TYPES.items():
            function = getattr(self.library, f"dnnl_{name}")
            function.argtypes, function.restype = types, _int
        self.library.dnnl_primitive_desc_query_md.argtypes = (Handle, _int, _int)
        self.library.dnnl_primitive_desc_query_md.restype = Handle
        self.library.dnnl_version.restype = ctypes.POINTER(_int)
        self.version = ".".join(map(str, self.library.dnnl_version()[:3]))
        self.engine, self.stream = Handle(), Handle()
        require(self.library.dnnl_engine_create(byref(self.engine), CPU, 0))
        require(self.library.dnnl_stream_create(byref(self.stream), self.engine, IN_ORDER))


class Convolution:
    """A convolution with a bias, stride 1 and equal padding on all sides, in layouts of oneDNN's choice.

    Each method makes what it names, from what is kept of the rest, and destroys it again.
    """

    def __init__(
        self, dnnl: OneDnn, src: Sequence[int], weights: Sequence[int], dst: Sequence[int], padding: int, relu: bool
    ) -> None:
        self._library, self._engine, self._relu = dnnl.library, dnnl.engine, relu
        self._rank = len(src)
        self._dims = array(src), array(weights), array(weights[:1]), array(dst)
        ones, zeros, sides = (array([value] * (len(src) - 2)) for value in (1, 0, padding))
        self._window = ones, zeros, sides, sides
        self._memories, self._attributes = self._describe_memories(), self._make_attributes()
        self._descriptor = self._describe(self._memories, self._attributes)
        # From now on it is in oneDNN's cache.
        self._primitive = self._create(self._descriptor)

    def anew(self) -> None:
        """Describe memories, attributes and operation; get the primitive."""
        memories, attributes = self._describe_memories(), self._make_attributes()
        self._get(self._describe(memories, attributes))
        self._forget(memories, attributes)

    def with_memories_kept(self) -> None:
        """Describe the operation; get the primitive."""
        self._get(self._describe(self._memories, self._attributes))

    def memories(self) -> None:
        """Describe memories and attributes."""
        self._forget(self._describe_memories(), self._make_attributes())

    def descriptor(self) -> None:
        """Describe the operation."""
        require(self._library.dnnl_primitive_desc_destroy(self._describe(self._memories, self._attributes)))

    def primitive(self) -> None:
        """Get the primitive."""
        require(self._library.dnnl_primitive_destroy(self._create(self._descriptor)))

    def _describe_memories(self) -> tuple[Handle, Handle, Handle, Handle]:
        create, rank = self._library.dnnl_memory_desc_create_with_tag, self._rank
        src_dims, weights_dims, bias_dims, dst_dims = self._dims
        src, weights, bias, dst = Handle(), Handle(), Handle(), Handle()
        require(
            create(byref(src), rank, src_dims, F32, ANY)
            | create(byref(weights), rank, weights_dims, F32, ANY)
            | create(byref(bias), 1, bias_dims, F32, ROW_MAJOR)
            | create(byref(dst), rank, dst_dims, F32, ANY)
        )
        return src, weights, bias, dst

    def _make_attributes(self) -> Handle | None:
        if not self._relu:
            return None
        library, attributes, post_ops = self._library, Handle(), Handle()
        require(
            library.dnnl_primitive_attr_create(byref(attributes))
            | library.dnnl_post_ops_create(byref(post_ops))
            | library.dnnl_post_ops_append_eltwise(post_ops, RELU, 0.0, 0.0)
            | library.dnnl_primitive_attr_set_post_ops(attributes, post_ops)
            | library.dnnl_post_ops_destroy(post_ops)
        )
        return attributes

    def _describe(self, memories: tuple[Handle, ...], attributes: Handle | None) -> Handle:
        found = Handle()
        require(
            self._library.dnnl_convolution_forward_primitive_desc_create(
                byref(found), self._engine, FORWARD_INFERENCE, DIRECT, *memories, *self._window, attributes
            )
        )
        return found

    def _create(self, descriptor: Handle) -> Handle:
        primitive = Handle()
        require(self._library.dnnl_primitive_create(byref(primitive), descriptor))
        return primitive

    def _get(self, descriptor: Handle) -> None:
        library = self._library
        require(
            library.dnnl_primitive_destroy(self._create(descriptor)) | library.dnnl_primitive_desc_destroy(descriptor)
        )

    def _forget(self, memories: tuple[Handle, Handle, Handle, Handle], attributes: Handle | None) -> None:
        destroy = self._library.dnnl_memory_desc_destroy
        src, weights, bias, dst = memories
        failed = destroy(src) | destroy(weights) | destroy(bias) | destroy(dst)
        if attributes is not None:
            failed |= self._library.dnnl_primitive_attr_destroy(attributes)
        require(failed)


def relu(dnnl: OneDnn, values: Sequence[float]) -> tuple[Callable[[], None], ctypes.Array[ctypes.c_float]]:
    """Return what executes an eltwise on some values and waits for it, and its result."""
    library, dims = dnnl.library, array([len(values)])
    desc, descriptor, primitive, stream = Handle(), Handle(), Handle(), dnnl.stream
    require(library.dnnl_memory_desc_create_with_tag(byref(desc), 1, dims, F32, ROW_MAJOR))
    require(
        library.dnnl_eltwise_forward_primitive_desc_create(
            byref(descriptor), dnnl.engine, FORWARD_INFERENCE, RELU, desc, desc, 0.0, 0.0, None
        )
    )
    require(library.dnnl_primitive_create(byref(primitive), descriptor))
    buffers = []
    arguments = (Argument * 2)()
    for argument, number in zip(arguments, (SRC, DST), strict=True):
        memory, address = Handle(), Handle()
        require(library.dnnl_memory_create(byref(memory), desc, dnnl.engine, ALLOCATE))
        require(library.dnnl_memory_get_data_handle(memory, byref(address)))
        argument.number, argument.memory = number, memory
        buffers.append((ctypes.c_float * len(values)).from_address(address.value or 0))
    src, dst = buffers
    src[:] = values

    def execute() -> None:
        require(library.dnnl_primitive_execute(primitive, stream, 2, arguments) | library.dnnl_stream_wait(stream))

    return execute, dst


def product(dnnl: OneDnn, left: NDArray[Any], right: NDArray[Any], packs: bool) -> Callable[[], NDArray[Any]]:
    """Return what multiplies copies of (..., M, K) and (..., K, N), in their strides, and returns the same result each time.

    With ``packs``, the right factor is in the layout that oneDNN prefers.
    """
    library, descriptor, primitive = dnnl.library, Handle(), Handle()
    result = np.empty((*left.shape[:-1], right.shape[-1]), np.float32)
    src, weights, dst = (_describe_array(dnnl, x) for x in (left, right, result))
    wanted = Handle()
    dims = array(right.shape)
    require(library.dnnl_memory_desc_create_with_tag(byref(wanted), right.ndim, dims, F32, ANY))
    require(
        library.dnnl_matmul_primitive_desc_create(
            byref(descriptor), dnnl.engine, src, wanted if packs else weights, None, dst, None
        )
    )
    require(library.dnnl_primitive_create(byref(primitive), descriptor))
    memories = [_allocate(dnnl, desc) for desc in (src, weights, dst)]
    for (_, address), values in zip(memories, (left, right), strict=False):
        strides, shape = [step // 4 for step in values.strides], values.shape
        reach = sum((size - 1) * step for size, step in zip(shape, strides, strict=True)) + 1
        flat = np.ctypeslib.as_array((ctypes.c_float * reach).from_address(address))
        np.lib.stride_tricks.as_strided(flat, shape, values.strides)[...] = values
    if packs:
        chosen = Handle(library.dnnl_primitive_desc_query_md(descriptor, WEIGHTS_DESC, 0))
        memories[1] = _reordered(dnnl, weights, memories[1], chosen)
    arguments = (Argument * 3)()
    for argument, number, (memory, _) in zip(arguments, (SRC, WEIGHTS, DST), memories, strict=True):
        argument.number, argument.memory = number, memory
    computed = np.ctypeslib.as_array((ctypes.c_float * result.size).from_address(memories[2][1])).reshape(result.shape)

    def execute() -> NDArray[Any]:
        require(
            library.dnnl_primitive_execute(primitive, dnnl.stream, 3, arguments) | library.dnnl_stream_wait(dnnl.stream)
        )
        return computed

    return execute


def _describe_array(dnnl: OneDnn, values: NDArray[Any]) -> Handle:
    desc = Handle()
    steps = array([step // 4 for step in values.strides])
    make = dnnl.library.dnnl_memory_desc_create_with_strides
    require(make(byref(desc), values.ndim, array(values.shape), F32, steps))
    return desc


def _allocate(dnnl: OneDnn, desc: Handle) -> tuple[Handle, int]:
    """Return a new memory and its address."""
    memory, address = Handle(), Handle()
    require(dnnl.library.dnnl_memory_create(byref(memory), desc, dnnl.engine, ALLOCATE))
    require(dnnl.library.dnnl_memory_get_data_handle(memory, byref(address)))
    return memory, address.value or 0


def _reordered(dnnl: OneDnn, desc: Handle, given: tuple[Handle, int], wanted: Handle) -> tuple[Handle, int]:
    """Return a copy of a memory in another layout."""
    library, descriptor, primitive = dnnl.library, Handle(), Handle()
    found = _allocate(dnnl, wanted)
    create = library.dnnl_reorder_primitive_desc_create
    require(create(byref(descriptor), desc, dnnl.engine, wanted, dnnl.engine, None))
    require(library.dnnl_primitive_create(byref(primitive), descriptor))
    arguments = (Argument * 2)()
    for argument, number, (memory, _) in zip(arguments, (SRC, DST), (given, found), strict=True):
        argument.number, argument.memory = number, memory
    require(library.dnnl_primitive_execute(primitive, dnnl.stream, 2, arguments))
    require(library.dnnl_stream_wait(dnnl.stream))
    return found


def array(values: Sequence[int]) -> ctypes.Array[ctypes.c_int64]:
    """Return dimensions as oneDNN takes them."""
    return (ctypes.c_int64 * len(values))(*values)


def require(failed: int) -> None:
    """Raise SystemExit where a function of oneDNN has failed."""
    if failed:
        raise SystemExit(f"oneDNN failed with status {failed}")


def _library() -> ctypes.CDLL:
    try:
        files = distribution(WHEEL).files or []
    except PackageNotFoundError:
        raise SystemExit(f"the rival is missing: pip install {WHEEL}") from None
    paths = [str(file.locate()) for file in files if file.name == "libdnnl.so.3"]
    try:
        (path,) = paths
        return ctypes.CDLL(path)
    except (OSError, ValueError) as error:
        raise SystemExit(f"{WHEEL} does not load: {error}; it needs libgomp (Debian: libgomp1)") from None
