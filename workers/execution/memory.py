"""A memory: a tensor's descriptor with its bytes, on one engine of this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..desc.data_type import numpy_name
from ..desc.memory_desc import MemoryDesc
from ..memory.host_bytes import HostBytes

if TYPE_CHECKING:
    import numpy
    import pyopencl

    from ..engines.engine import Engine
    from ..memory.device_bytes import DeviceBytes
    from ..streams.stream import Stream


class Memory:
    """Memory of one descriptor on an engine; without an engine it is host memory, as for every engine of kind cpu.

    ``buffer`` holds the bytes, and is kept and not copied: any writable C-contiguous buffer, or for an OpenCL engine a
    ``pyopencl.Buffer`` too. Without one, the memory has new bytes, zeroed on the host. Kernels expect zeros in padding. The
    caller writes them, unless ``stream`` is given: then a primitive does, in the order of the stream and on its threadpool.
    Raises ValueError if the buffer is smaller than the descriptor needs or of another engine, if the stream is on another
    engine, or if the descriptor's layout is ``any``, and TypeError naming an argument of another type.
    """

    __slots__ = ("__weakref__", "_bytes", "desc", "engine")

    def __init__(
        self, desc: MemoryDesc, engine: Engine | None = None, buffer: Any = None, stream: Stream | None = None
    ) -> None:
        if not isinstance(desc, MemoryDesc):
            raise TypeError(f"desc: expect a MemoryDesc, got {type(desc).__name__}")
        # No isinstance: processes without an engine need not import its class.
        kind = "cpu" if engine is None else getattr(engine, "kind", None)
        if kind not in ("cpu", "opencl"):
            raise TypeError(f"engine: expect an Engine, got {type(engine).__name__}")
        self.desc = desc
        self.engine = engine
        self._bytes: HostBytes | DeviceBytes
        if engine is not None and kind == "opencl":
            from ..memory.device_bytes import DeviceBytes

            self._bytes = DeviceBytes(engine.opencl, desc.nbytes, buffer)
        else:
            self._bytes = HostBytes(desc.nbytes, buffer)
        if stream is not None:
            self._pad(stream)

    @property
    def is_on_host(self) -> bool:
        """Whether the bytes are in host memory, which every engine of kind cpu uses."""
        return isinstance(self._bytes, HostBytes)

    @property
    def address(self) -> int:
        """The address of the first byte in host memory. Raises ValueError for memory of another kind of engine."""
        if not isinstance(self._bytes, HostBytes):
            raise ValueError(f"{self} is on {self.engine}, not in host memory")
        return self._bytes.address

    @property
    def owner(self) -> object:
        """The object that keeps the bytes alive, even if this memory gets others; None if the caller keeps them alive."""
        return self._bytes.owner

    @property
    def device_buffer(self) -> pyopencl.Buffer:
        """The buffer on an OpenCL device. Raises ValueError for memory of another kind of engine, and while it is mapped."""
        if isinstance(self._bytes, HostBytes):
            raise ValueError(f"{self} is in host memory, not on an OpenCL device")
        if self._bytes.is_mapped:
            raise ValueError(f"{self} is mapped: unmap it first")
        return self._bytes.buffer

    def get_data_handle(self) -> int | pyopencl.Buffer:
        """Return the address of the bytes, or their ``pyopencl.Buffer``."""
        return self._bytes.address if isinstance(self._bytes, HostBytes) else self._bytes.buffer

    def set_data_handle(self, handle: int | pyopencl.Buffer, stream: Stream | None = None) -> None:
        """Use the bytes at another address, which the caller keeps alive, or another ``pyopencl.Buffer``.

        With a stream, a primitive zeroes the padding, as for a new memory.
        Raises TypeError for a handle of the other kind, and ValueError for a buffer that is too small or of another engine.
        """
        if isinstance(self._bytes, HostBytes):
            if not isinstance(handle, int):
                raise TypeError(f"handle: expect an address, got {type(handle).__name__}")
            self._bytes.set_handle(self.desc.nbytes, handle)
        else:
            self._bytes.set_handle(handle)
        if stream is not None:
            self._pad(stream)

    def map(self) -> memoryview:
        """Give the host access to the bytes, and return them; writable until `unmap`.

        Executions on this memory must have ended: see `Stream.wait`. A second call returns the same bytes.
        """
        if not isinstance(self._bytes, HostBytes):
            self._bytes.map()
        return self._opened()

    def unmap(self) -> None:
        """End the access that `map` began. Call it before a stream uses the memory again.

        Arrays and views made meanwhile must not be used any more. Without effect if the memory is not mapped.
        """
        if not isinstance(self._bytes, HostBytes):
            self._bytes.unmap()

    def numpy(self) -> numpy.ndarray[Any, Any]:
        """Return a view of the elements as an array of the descriptor's dimensions and strides.

        Raises ValueError for a layout with blocks, for a data type that NumPy does not have (bf16 needs the package
        ml_dtypes), and for memory of a device that is not mapped.
        """
        import numpy

        desc = self.desc
        if desc.layout.blocks:
            raise ValueError(f"{desc} has blocks, which an array cannot have: reorder the memory first")
        kind = _bfloat16() if desc.dtype == "bf16" else numpy.dtype(numpy_name(desc.dtype))
        view = self._opened()
        if not desc.elements:
            return numpy.empty(desc.dims, kind)
        strides = [stride * kind.itemsize for stride in desc.outer_strides()]
        return numpy.ndarray(desc.dims, kind, view, strides=strides)

    def _pad(self, stream: Stream) -> None:
        desc, engine = self.desc, stream.engine
        if engine is not self.engine and not (self.is_on_host and engine.kind == "cpu"):
            raise ValueError(f"stream: expect one on the engine of {self}, got one on {engine}")
        if desc.padded_dims == desc.dims:
            return
        from ..desc import Arg
        from ..desc.operations.padding import Padding
        from .primitive_desc_iface import describe

        describe(Padding, engine, (desc,), None, None).create().execute(stream, {Arg.DST: self})

    def _opened(self) -> memoryview:
        view = self._bytes.view
        if view is None:
            raise ValueError(f"{self} is not mapped: map it first")
        return view

    def __repr__(self) -> str:
        return f"Memory({self.desc})" if self.engine is None else f"Memory({self.desc}, {self.engine})"


def _bfloat16() -> numpy.dtype[Any]:
    import numpy

    try:
        import ml_dtypes
    except ImportError as error:
        raise ValueError("data type bf16 needs the package ml_dtypes: pip install ml_dtypes") from error
    kind: numpy.dtype[Any] = numpy.dtype(ml_dtypes.bfloat16)
    return kind
