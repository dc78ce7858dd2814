"""Products of NumPy matrices without descriptors: `sgemm` and the integer products `gemm_u8s8s32` and `gemm_s8s8s32`.

Each is one matmul primitive from the cache, on the threads of a threadpool or, without one, on the calling thread.
Matrices are read in place if rows or columns are evenly spaced, transposed ones too; others are copied.
"""

from __future__ import annotations

import ctypes
import mmap
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from .desc import Arg, MemoryDesc, PostOp, PrimitiveAttr, Quantisation, zero_points_of
from .engines.engine import Engine
from .execution.calling_thread import CallingThreadExecution, ThreadScratchpads
from .execution.memory import Memory
from .execution.native_binding import RealizedPrimitive
from .memory.buffer import SLACK
from .operations.matmul import Matmul
from .streams.attributes import StreamAttr
from .streams.stream import Stream
from .threadpools.interface import ThreadpoolInterface
from .threadpools.nesting import can_wait

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import ArrayLike, NDArray

    from .execution.array_call import ArrayCalls
    from .execution.primitive import Primitive

    _OnPool = Callable[[ThreadpoolInterface, tuple[int, ...]], None]
    _Ready = tuple[tuple[int, int], Callable[[tuple[int, ...]], None], _OnPool, int, "_Repeated | None"]

#: Meaning of ``offsetc`` -> mask of dst's zero points: one value, one a column, one a row.
_OFFSETS: Final = {"F": 0, "R": 2, "C": 1}
#: Primitives of products that are kept ready, most recently used.
_KEPT: Final = 256
#: Columns that the kernels read at once.
_LANES: Final = 16
_PAGE: Final = mmap.PAGESIZE
#: Nanoseconds of a product, and bytes of its scratch memory, at most, whose matrices compiled code looks at.
_SHORT: Final = 100_000
_LITTLE: Final = 512 << 10


def sgemm(
    a: ArrayLike,
    b: ArrayLike,
    c: NDArray[Any] | None = None,
    *,
    transa: bool = False,
    transb: bool = False,
    alpha: float = 1.0,
    beta: float = 0.0,
    threadpool: ThreadpoolInterface | None = None,
) -> NDArray[Any]:
    """Return alpha * op(a) @ op(b) + beta * c in float32; op transposes where asked for.

    op(a) is (M, K), op(b) (K, N), both float32; ``c`` (M, N) float32, if given, takes the result. Without a threadpool
    the calling thread computes, and also in a task of an asynchronous pool; outside of its tasks, that is waited for.
    Raises ValueError, or TypeError for an object of another type, naming the argument.
    """
    if alpha == 1.0 and beta == 0.0 and (threadpool is None or _is_joined(threadpool)):
        product = _products().multiply_in_place(a, b, c, transa, transb, threadpool)
        if product is not None:
            return product
    import numpy

    left, right = _factor("a", a, "float32", transa), _factor("b", b, "float32", transb)
    result = _result(left, right, c, "float32")
    if alpha == 1.0 and beta == 0.0:
        _multiply(left, right, result, PrimitiveAttr(), {}, threadpool)
        return result
    product = numpy.empty(result.shape, "float32")
    is_short = threadpool is None or _is_joined(threadpool)
    if not is_short or _products().multiply_in_place(left, right, product, False, False, threadpool) is None:
        _multiply(left, right, product, PrimitiveAttr(), {}, threadpool)
    product *= numpy.float32(alpha)
    if beta != 0.0:
        product += numpy.float32(beta) * result
    result[...] = product
    return result


def gemm_u8s8s32(
    a: ArrayLike,
    b: ArrayLike,
    c: NDArray[Any] | None = None,
    *,
    transa: bool = False,
    transb: bool = False,
    alpha: float = 1.0,
    beta: float = 0.0,
    ao: int = 0,
    bo: int = 0,
    co: ArrayLike = 0,
    offsetc: str = "F",
    threadpool: ThreadpoolInterface | None = None,
) -> NDArray[Any]:
    """Return alpha * (op(a) - ao) @ (op(b) - bo) + beta * c + co in int32.

    op(a) is (M, K) uint8, op(b) (K, N) int8; ``c`` (M, N) int32, if given, takes the result. ``co`` is one value
    (``offsetc`` "F"), one a column ("R", N values) or one a row ("C", M values). Sums are exact modulo 2**32; with other
    factors than alpha 1 and beta 0 or 1, they are scaled in float64, rounded to even and saturated. Threads as for
    `sgemm`. Raises ValueError naming the argument. Definition: oneDNN's ``dnnl_gemm_u8s8s32``, row-major.
    """
    return _integer_gemm("uint8", a, b, c, transa, transb, (alpha, beta), (ao, bo, co, offsetc), threadpool)


def gemm_s8s8s32(
    a: ArrayLike,
    b: ArrayLike,
    c: NDArray[Any] | None = None,
    *,
    transa: bool = False,
    transb: bool = False,
    alpha: float = 1.0,
    beta: float = 0.0,
    ao: int = 0,
    bo: int = 0,
    co: ArrayLike = 0,
    offsetc: str = "F",
    threadpool: ThreadpoolInterface | None = None,
) -> NDArray[Any]:
    """Return what `gemm_u8s8s32` returns, for a signed op(a): (M, K) int8."""
    return _integer_gemm("int8", a, b, c, transa, transb, (alpha, beta), (ao, bo, co, offsetc), threadpool)


def _integer_gemm(
    dtype: str, a: Any, b: Any, c: Any, transa: bool, transb: bool, factors: tuple[float, float],
    offsets: tuple[int, int, Any, str], threadpool: ThreadpoolInterface | None,
) -> NDArray[Any]:  # fmt: skip
    import numpy

    left, right = _factor("a", a, dtype, transa), _factor("b", b, "int8", transb)
    result = _result(left, right, c, "int32")
    ao, bo, co, offsetc = offsets
    if offsetc not in _OFFSETS:
        raise ValueError(f"offsetc: unknown {offsetc!r}; known: {', '.join(_OFFSETS)}")
    shift = numpy.ascontiguousarray(co, "int32").reshape(-1)
    count = {"F": 1, "R": result.shape[1], "C": result.shape[0]}[offsetc]
    if shift.size != count:
        raise ValueError(f"co: expect {count} values for offsetc {offsetc!r}, got {shift.size}")
    exact = factors in ((1.0, 0.0), (1.0, 1.0))
    points: dict[int, tuple[int, NDArray[Any]]] = {}
    for arg, value in ((Arg.SRC, ao), (Arg.WEIGHTS, bo)):
        if value:
            points[arg] = (0, numpy.array([value], "int32"))
    if exact and shift.any():
        points[Arg.DST] = (_OFFSETS[offsetc], shift)
    attr = PrimitiveAttr(
        (PostOp.accumulate(),) if exact and factors[1] else (),
        zero_points=tuple(Quantisation(arg, mask) for arg, (mask, _) in points.items()),
    )
    given = {zero_points_of(arg): values for arg, (_, values) in points.items()}
    if exact:
        _multiply(left, right, result, attr, given, threadpool)
        return result
    product = numpy.zeros(result.shape, "int32")
    _multiply(left, right, product, attr, given, threadpool)
    wide = factors[0] * product.astype("float64") + (shift[:, None] if offsetc == "C" else shift)
    if factors[1]:
        wide += factors[1] * result
    limits = numpy.iinfo("int32")
    result[...] = numpy.clip(numpy.rint(wide), limits.min, limits.max)
    return result


def _is_joined(pool: ThreadpoolInterface) -> bool:
    """Return whether regions end before a pool returns to the calling thread, which runs no task of it."""
    try:
        in_place = pool.runs_in_place
    except AttributeError:
        raise TypeError(f"threadpool: expect a ThreadpoolInterface, got {type(pool).__name__}") from None
    if not in_place and (not pool.IS_CONSTANT or pool.get_flags() & pool.ASYNCHRONOUS):
        return False
    return not pool.get_in_parallel()


def _factor(name: str, given: Any, dtype: str, transposed: bool) -> NDArray[Any]:
    """Return a factor in its multiplied form, (rows, columns), copied only if kernels cannot read it where it is."""
    import numpy

    from .memory.array_room import copy_with_room, has_room_behind

    array = numpy.asarray(given)
    if array.dtype != dtype or array.ndim != 2:
        raise ValueError(f"{name}: expect a matrix of {dtype}, got {array.dtype} of shape {array.shape}")
    matrix = array.T if transposed else array
    sizes = matrix.shape, matrix.strides, matrix.itemsize
    if _is_even(*sizes) and (0 in matrix.shape or has_room_behind(matrix.ctypes.data + _reach(*sizes))):
        return matrix
    return copy_with_room(matrix)


def _reach(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> int:
    """Return the bytes of a matrix from its first element to the end of the last."""
    return sum((size - 1) * step for size, step in zip(shape, strides, strict=True)) + itemsize


def _is_even(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> bool:
    """Return whether the elements of a matrix are evenly spaced, and each has a place of its own."""
    steps = [step // itemsize for step, size in zip(strides, shape, strict=True) if size > 1]
    even = all(step % itemsize == 0 for step in strides)
    overlap = len(steps) == 2 and max(steps) < min(steps) * shape[steps.index(min(steps))]
    return even and all(step > 0 for step in steps) and not overlap


def _result(left: NDArray[Any], right: NDArray[Any], given: NDArray[Any] | None, dtype: str) -> NDArray[Any]:
    import numpy

    if left.shape[1] != right.shape[0]:
        raise ValueError(f"b: expect {left.shape[1]} rows after op, got {right.shape[0]}")
    shape = (left.shape[0], right.shape[1])
    if given is None:
        return numpy.zeros(shape, dtype)
    if not isinstance(given, numpy.ndarray):
        raise TypeError(f"c: expect an array, got {type(given).__name__}")
    if given.dtype != dtype or given.shape != shape or not given.flags.c_contiguous or not given.flags.writeable:
        raise ValueError(f"c: expect a writable row-major {shape} of {dtype}, got {given.dtype} of shape {given.shape}")
    return given


def _multiply(
    left: NDArray[Any], right: NDArray[Any], result: NDArray[Any], attr: PrimitiveAttr, given: dict[int, NDArray[Any]],
    threadpool: ThreadpoolInterface | None,
) -> None:  # fmt: skip
    if 0 in result.shape:
        return
    products = _products()
    primitive = products.primitive(_desc(left), _desc(right), _desc(result), attr)
    arrays = {Arg.SRC: left, Arg.WEIGHTS: right, Arg.DST: result, **given}
    memories = {arg: products.memory(_desc(array), array) for arg, array in arrays.items()}
    attributes = StreamAttr("cpu")
    attributes.set_threadpool(threadpool)
    if threadpool is not None and not can_wait(threadpool):
        attributes.set_threadpool(None)
    stream = Stream(products.engine, attributes)
    primitive.execute(stream, memories)
    stream.wait()


def _desc(array: NDArray[Any]) -> MemoryDesc:
    return _described(array.shape, array.strides, str(array.dtype), array.itemsize)


def _described(shape: tuple[int, ...], strides: Sequence[int], dtype: str, itemsize: int) -> MemoryDesc:
    if 0 in shape:
        return MemoryDesc(shape, dtype)
    steps = tuple(step // itemsize if size > 1 else 1 for step, size in zip(strides, shape, strict=True))
    return MemoryDesc(shape, dtype, strides=steps)


class _Repeated:
    """What computes products of row-major matrices of one shape in one call, once it is open."""

    __slots__ = ("_make", "execution", "run", "shape", "transa", "transb")

    def __init__(
        self, execution: CallingThreadExecution, shape: tuple[int, int], transposed: tuple[bool, bool],
        make: Callable[[], ArrayCalls],
    ) -> None:  # fmt: skip
        self.execution = execution
        self.shape = shape
        self.transa, self.transb = transposed
        self._make: Callable[[], ArrayCalls] | None = make

    def open(self) -> None:
        """Make `run`, that of `ArrayCalls`, unless it is there."""
        make = self._make
        if make is not None:
            self.run = make().run
            self._make = None


class _Products:
    """The engine of this process's products, and their last used primitives."""

    def __init__(self) -> None:
        import numpy

        self.engine = Engine("cpu")
        self._verbose = self.engine.verbose
        from .memory.array_address import (
            ARE_THERE,
            DATA,
            FLAGS,
            IN_ORDER,
            IS_THERE,
            WORDS,
            address_in_order,
            address_of,
        )
        from .memory.array_room import copy_with_room

        self._array, self._empty, self._float32 = numpy.ndarray, numpy.empty, numpy.dtype("float32")
        self._address_of, self._address_in_order, self._copy_with_room = address_of, address_in_order, copy_with_room
        self._are_there = ARE_THERE
        self._places: Final = IS_THERE, WORDS, DATA, FLAGS, IN_ORDER
        self._primitive = lru_cache(maxsize=_KEPT)(self._create)
        self._ready = lru_cache(maxsize=_KEPT)(self._bind)
        self._scratchpads = ThreadScratchpads()
        #: Shapes, transpositions, and strides of what is not row-major, that `multiply_in_place` was asked for last, and what
        #: it found.
        self._latest: tuple[object, _Ready | None] = (None, None)
        #: Of the shapes of the last two products, if these are row-major and small.
        self._repeated: _Repeated | None = None

    def primitive(self, src: MemoryDesc, weights: MemoryDesc, dst: MemoryDesc, attr: PrimitiveAttr) -> Primitive:
        """Return the primitive of a product, ready to be executed."""
        return self._primitive(src, weights, dst, attr)

    def memory(self, desc: MemoryDesc, array: NDArray[Any]) -> Memory:
        """Return an array's bytes as a memory, which keeps the array alive in case the wait is interrupted."""
        block: Any = (ctypes.c_char * desc.nbytes).from_address(array.ctypes.data)
        block.keeps = array
        return Memory(desc, self.engine, block)

    def multiply_in_place(
        self, a: Any, b: Any, c: NDArray[Any] | None, transa: bool, transb: bool, pool: ThreadpoolInterface | None
    ) -> NDArray[Any] | None:
        """Return the product of matrices that need no check and no copy; None of others.

        The calling thread computes it, together with a pool's threads if there is one, which it has joined.
        """
        float32 = self._float32
        repeated = self._repeated
        if repeated is not None:
            if (
                c is None
                and repeated.transa is transa
                and repeated.transb is transb
                and (pool is None or repeated.execution.is_serial_on(pool))
                and not self._verbose.executes
            ):
                product = self._empty(repeated.shape, float32)
                if repeated.run(a, b, product):
                    return product
            self._repeated = None
        if type(a) is not self._array or type(b) is not self._array:
            return None
        if (a.dtype is not float32 and a.dtype != float32) or (b.dtype is not float32 and b.dtype != float32):
            return None
        is_there, words, data, flags, in_order = self._places
        if is_there:
            # As `address_in_order` does it, without calls.
            of_a, of_b = id(a) >> 3, id(b) >> 3
            left = words[of_a + data] if words[of_a + flags] & in_order == in_order else 0
            right = words[of_b + data] if words[of_b + flags] & in_order == in_order else 0
        else:
            left, right = self._address_in_order(a), self._address_in_order(b)
        # The strides of row-major matrices follow from their shapes.
        strides = None if left and right else (a.strides, b.strides)
        asked = a.shape, b.shape, transa, transb, strides
        known, ready = self._latest
        # A look into the cache takes longer, because it hashes all numbers.
        if known != asked:
            ready = self._ready(a.shape, a.strides, b.shape, b.strides, transa, transb)
            self._latest = asked, ready
        elif c is None and strides is None and ready is not None and ready[4] is not None:
            repeated = ready[4]
            if pool is None or repeated.execution.is_serial_on(pool):
                repeated.open()
                self._repeated = repeated
        if ready is None or self._verbose.executes:
            return None
        shape, execute, execute_on, reach, _ = ready
        if reach and -((right or self._address_of(b)) + reach) % _PAGE < SLACK:
            # The same product is not one of the same shapes again.
            self._latest = None, None
            return self.multiply_in_place(a, self._copy_with_room(b), c, transa, transb, pool)
        if c is None:
            c = self._empty(shape, float32)
        elif (
            type(c) is not self._array
            or c.dtype != float32
            or c.shape != shape
            or not c.flags.c_contiguous
            or not c.flags.writeable
        ):
            return None
        address_of = self._address_of
        addresses = left or address_of(a), right or address_of(b), address_of(c)
        if pool is None:
            execute(addresses)
        else:
            execute_on(pool, addresses)
        return c

    def _bind(
        self, a: tuple[int, ...], a_steps: tuple[int, ...], b: tuple[int, ...], b_steps: tuple[int, ...], transa: bool,
        transb: bool,
    ) -> _Ready | None:  # fmt: skip
        """Return the product's shape and what multiplies matrices at their addresses, alone and on a pool; or None.

        Shapes and strides, in bytes, are those of matrices of float32. The next item is the bytes of ``b`` from its first
        element to its end, behind which kernels read; 0 if they do not. The last is what computes the product in one call.
        """
        left, right = (a[::-1] if transa else a), (b[::-1] if transb else b)
        left_steps, right_steps = (a_steps[::-1] if transa else a_steps), (b_steps[::-1] if transb else b_steps)
        if not (len(a) == len(b) == 2 and left[1] == right[0] and 0 not in (*a, *b)):
            return None
        if not (_is_even(left, left_steps, 4) and _is_even(right, right_steps, 4)):
            return None
        src, weights = _described(left, left_steps, "f32", 4), _described(right, right_steps, "f32", 4)
        dst = MemoryDesc((left[0], right[1]), "f32")
        resource = self.primitive(src, weights, dst, PrimitiveAttr()).resource
        if not isinstance(resource, RealizedPrimitive):
            return None
        execution = CallingThreadExecution(resource, (Arg.SRC, Arg.WEIGHTS, Arg.DST), self._scratchpads)
        # Columns are read in whole vectors; those of a single row are not.
        reach = 0 if left[0] == 1 or right[1] % _LANES == 0 else _reach(right, right_steps, 4)
        repeated = None
        if self._are_there and resource.entry.scratchpad <= _LITTLE and execution.nanoseconds <= _SHORT:
            repeated = _Repeated(
                execution, (left[0], right[1]), (transa, transb), lambda: self._calls(resource, (*a, 0), (*b, reach))
            )
        return (left[0], right[1]), execution.execute, execution.execute_on, reach, repeated

    def _calls(self, primitive: RealizedPrimitive, *wanted: tuple[int, ...]) -> ArrayCalls:
        from .execution.array_call import ArrayCalls, array_call

        return ArrayCalls(array_call(), primitive, (Arg.SRC, Arg.WEIGHTS, Arg.DST), wanted)

    def _create(self, src: MemoryDesc, weights: MemoryDesc, dst: MemoryDesc, attr: PrimitiveAttr) -> Primitive:
        return Matmul.PrimitiveDesc(self.engine, src, weights, None, dst, attr=attr).create()


@lru_cache(maxsize=1)
def _products() -> _Products:
    return _Products()
