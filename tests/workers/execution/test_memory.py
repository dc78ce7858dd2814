"""Memories: bytes of their own or of the caller's, on every kind of engine."""

from __future__ import annotations

import array
import gc

import numpy as np
import pytest

from poolrt.workers.desc import MemoryDesc
from poolrt.workers.engines.engine import Engine
from poolrt.workers.execution.memory import Memory
from tests.workers.own_process import python

DTYPES = {"f64": 2.5, "f32": -1.5, "f16": 0.5, "bf16": 0.5, "s64": -(2**40), "s32": -7, "s8": -7, "u8": 200, "bool": 1}


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_data_type_is_seen_as_an_array(dtype: str) -> None:
    if dtype == "bf16":
        pytest.importorskip("ml_dtypes")
    memory = Memory(MemoryDesc((2, 3), dtype), Engine("cpu"))
    assert memory.numpy().shape == (2, 3)
    assert not memory.numpy().any()
    memory.numpy()[1, 2] = DTYPES[dtype]
    assert memory.numpy()[1, 2] == DTYPES[dtype]
    assert len(memory.map()) == memory.desc.nbytes


@pytest.mark.parametrize(
    "md",
    [
        MemoryDesc((2, 3, 4), "f32", "cab"), MemoryDesc((2, 3), "s8", strides=(5, 1)), MemoryDesc((), "f32"),
        MemoryDesc((3, 0), "f32"), MemoryDesc((1, 3), "f16", "ba"),
    ],
    ids=str,
)  # fmt: skip
def test_an_array_has_the_strides_of_the_layout(md: MemoryDesc) -> None:
    memory = Memory(md)
    values = np.arange(md.elements).reshape(md.dims)
    memory.numpy()[...] = values
    flat = np.frombuffer(memory.map(), memory.numpy().dtype)
    for index in np.ndindex(md.dims):
        assert flat[sum(i * s for i, s in zip(index, md.outer_strides(), strict=True))] == values[index]


def test_bytes_of_the_caller_are_kept_and_not_copied() -> None:
    given = array.array("f", range(8))
    memory = Memory(MemoryDesc((2, 3), "f32"), buffer=given)
    memory.numpy()[0, 1] = 9
    assert given[1] == 9
    assert memory.address == memory.get_data_handle() == given.buffer_info()[0]


def test_an_array_keeps_the_bytes_that_it_shows() -> None:
    array = Memory(MemoryDesc((1 << 16,), "s32")).numpy()
    gc.collect()
    array[:] = 5
    assert (array == 5).all()


def test_a_handle_moves_a_memory_to_other_bytes() -> None:
    memory = Memory(MemoryDesc((4,), "s32"))
    other = np.arange(4, dtype=np.int32)
    memory.set_data_handle(other.ctypes.data)
    assert memory.get_data_handle() == other.ctypes.data
    memory.numpy()[0] = 7
    assert other.tolist() == [7, 1, 2, 3]


def test_errors_name_what_is_wrong() -> None:
    md = MemoryDesc((4,), "f32")
    with pytest.raises(ValueError, match="buffer: expect 16 bytes, got 12"):
        Memory(md, buffer=bytearray(12))
    with pytest.raises(TypeError, match="not writable"):
        Memory(md, buffer=bytes(16))
    with pytest.raises(TypeError, match="handle: expect an address, got bytes"):
        Memory(md).set_data_handle(b"")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="desc: expect a MemoryDesc, got tuple"):
        Memory((4,))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="engine: expect an Engine, got str"):
        Memory(md, "cpu")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="tag any"):
        Memory(MemoryDesc((4,), "f32", "any"))
    with pytest.raises(ValueError, match="has blocks"):
        Memory(MemoryDesc((4,), "f32", "A16a")).numpy()
    with pytest.raises(ValueError, match="not on an OpenCL device"):
        _ = Memory(md).device_buffer


OPENCL = """
import numpy as np
import pyopencl as cl
from poolrt.workers.desc import MemoryDesc
from poolrt.workers.engines.engine import Engine
from poolrt.workers.execution.memory import Memory

engine = Engine("opencl")
engine.opencl.shares_memory = {shared}
md = MemoryDesc((2, 3), "f32")
queue = engine.opencl.queue
kinds = {{"own": None, "host": np.zeros(6, np.float32), "device": cl.Buffer(engine.opencl.context, 1, 24)}}
for name, given in kinds.items():
    memory = Memory(md, engine, given)
    # What the host writes between map and unmap is what the device reads
    memory.map()
    memory.numpy()[...] = np.arange(6).reshape(2, 3)
    memory.unmap()
    read = np.empty(6, np.float32)
    cl.enqueue_copy(queue, read, memory.get_data_handle())
    # And the other way round
    cl.enqueue_fill_buffer(queue, memory.device_buffer, np.float32(4), 0, 24)
    queue.finish()
    memory.map()
    print(name, read.tolist() == list(range(6)), bool((memory.numpy() == 4).all()))
    memory.unmap()
try:
    Memory(md, engine, kinds["device"]).numpy()
except ValueError as error:
    print(error)
other = Memory(md, Engine("opencl"))
for call in (lambda: Memory(md, engine, other.get_data_handle()),
             lambda: memory.set_data_handle(other.get_data_handle())):
    try:
        call()
    except ValueError as error:
        print(error)
memory = Memory(md, engine)
memory.map()
if {shared}:
    memory.device_buffer
else:
    try:
        memory.device_buffer
    except ValueError as error:
        print(error)
memory.unmap()
memory.unmap()
memory.device_buffer
for call in (lambda: memory.address, lambda: Memory(md, engine, cl.Buffer(engine.opencl.context, 1, 8)),
             lambda: memory.set_data_handle(4096), lambda: Memory(MemoryDesc((0,), "f32"), engine).map()):
    try:
        print(bytes(call()))
    except (TypeError, ValueError) as error:
        print(error)
"""


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.one_in(2)
def test_memory_of_an_opencl_device_is_mapped(device: str, shared: bool) -> None:
    lines = python(OPENCL.format(shared=shared)).splitlines()
    assert lines[:3] == ["own True True", "host True True", "device True True"]
    where = "Memory(f32:ab:2x3, Engine('opencl', 0))"
    assert lines[3] == f"{where} is not mapped: map it first"
    assert lines[4:6] == ["buffer: expect one of the engine's context, got one of another"] * 2
    if not shared:
        assert lines.pop(6) == f"{where} is mapped: unmap it first"
    assert lines[6] == f"{where} is on Engine('opencl', 0), not in host memory"
    assert lines[7:] == ["buffer: expect 24 bytes, got 8", "handle: expect a pyopencl.Buffer, got int", "b''"]
