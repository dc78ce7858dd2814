"""Fourier transforms of whole signals and of windows, and the weights of mel spectra."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import numpy as np

from poolrt.workers.implementations.native.dft import find_factors

from ...values import Value
from ..call import NodeCall, Operator
from ..element_types import array_type
from ..tensors import Operand, dtype_of, shape_of
from .fourier_stages import find_stages, transform_in_stages


def fourier(call: NodeCall) -> Operand:
    """Transform along an axis; the last dimension has the real and the imaginary part, or the real one alone."""
    source = call.real(0)
    sizes = call.shape(0)
    rank = len(sizes)
    if call.opset >= 20:
        given = call.known(2, "the axis") if call.has(2) else np.asarray(-2)
        if given.size != 1:
            raise call.malformed("the axis: expect one integer")
        axis = int(given.reshape(()))
    else:
        axis = call.integer("axis", 1)
    if rank < 2 or not -rank <= axis < rank or axis % rank == rank - 1 or sizes[-1] not in (1, 2):
        raise call.malformed(
            f"axis {axis} of shape {sizes}: expect numbers of one or two parts along the last dimension"
        )
    axis %= rank
    inverse, one_sided = bool(call.integer("inverse", 0)), bool(call.integer("onesided", 0))
    # Half of the frequencies, of an even number of elements
    length = max(2 * (sizes[axis] - 1), 1) if inverse and one_sided else sizes[axis]
    if call.has(1):
        given = call.known(1, "dft_length")
        if given.size != 1 or int(given.reshape(())) < 1:
            raise call.malformed("dft_length: expect one positive integer")
        length = int(given.reshape(()))
    return _transform(call, source, axis, length, inverse, one_sided)


def _transform(call: NodeCall, source: Operand, axis: int, length: int, inverse: bool, one_sided: bool) -> Operand:
    """Transform by one primitive if that is the fast way, else in float64 by matrices of cosines and sines."""
    m, sizes = call.math, shape_of(source)
    if (
        isinstance(source, Value)
        and call.graph.engine == "cpu"
        and dtype_of(source) in ("float32", "float64")
        and find_factors(length) is not None
    ):
        return call.graph.dft(
            source, axis, length, inverse=inverse, one_sided=one_sided, name=call.name_part("transformed")
        )
    rank, half = len(sizes), length // 2 + 1
    read = half if inverse and one_sided else length
    wide = m.cast(source, "float64")
    if read < sizes[axis]:
        wide = m.slice(wide, [0], [read], [axis], [1])
    elif read > sizes[axis]:
        ends = [0] * rank
        ends[axis] = read - sizes[axis]
        wide = m.pad_constant(wide, [0] * rank, ends, m.number(0, wide))
    made = half if one_sided and not inverse else length
    order = [each for each in range(rank) if each not in (axis, rank - 1)] + [rank - 1, axis]
    rows = m.transpose(wide, order)
    stages = find_stages(length)
    if stages is None:
        joined = _multiply(call, rows, read, made, length, inverse, inverse and one_sided)
    else:
        joined = _in_stages(call, rows, stages, made, inverse, inverse and one_sided)
    return m.cast(m.transpose(joined, [order.index(each) for each in range(rank)]), dtype_of(source))


def _multiply(
    call: NodeCall, rows: Operand, read: int, made: int, length: int, inverse: bool, to_real: bool
) -> Operand:
    """Multiply rows of elements, real parts before imaginary ones, by matrices of cosines and sines."""
    m, sizes = call.math, shape_of(rows)
    rank = len(sizes)
    call.folding.book((4 * read, made), np.dtype(np.float64))
    angles = 2 * math.pi / length * (np.outer(np.arange(read), np.arange(made)) % length)
    scale, sign = (1 / length, 1.0) if inverse else (1.0, -1.0)
    cosines, sines = np.cos(angles) * scale, np.sin(angles) * scale * sign
    if to_real:
        # The other half is the conjugate of this one, except for the first and, of an even number, the last.
        twice = np.where((np.arange(read) == 0) | (2 * np.arange(read) == length), 1.0, 2.0)[:, None]
        cosines, sines = cosines * twice, sines * twice
    parts = [m.slice(rows, [part], [part + 1], [rank - 2], [1]) for part in range(sizes[-2])]
    real = m.matmul(parts[0], cosines)
    if len(parts) == 2:
        real = m.binary(real, m.matmul(parts[1], sines), "sub")
    if to_real:
        return real
    imaginary = m.matmul(parts[0], sines)
    if len(parts) == 2:
        imaginary = m.binary(imaginary, m.matmul(parts[1], cosines), "add")
    return m.concat([real, imaginary], rank - 2)


def _in_stages(
    call: NodeCall, rows: Operand, stages: tuple[int, int], made: int, inverse: bool, to_real: bool
) -> Operand:
    """Transform rows of elements of a composite length."""
    m, length = call.math, math.prod(stages)
    *outer, parts, read = shape_of(rows)
    signals = m.reshape(rows, (math.prod(outer), parts, read))
    if to_real:
        # The other half is the conjugate of this one.
        places = np.arange(length)
        signals = m.take(signals, np.minimum(places, length - places), 2)
        if parts == 2:
            signs = np.where(places < read, 1.0, -1.0)
            signals = m.binary(signals, np.stack([np.ones(length), signs])[None], "mul")
    scale, sign = (1 / length, 1.0) if inverse else (1.0, -1.0)
    kept = 1 if to_real else 2
    found = transform_in_stages(
        m, signals, stages, sign, scale, kept, lambda shape: call.folding.book(shape, np.dtype(np.float64))
    )
    if made < length:
        found = m.slice(found, [0], [made], [2], [1])
    return m.reshape(found, (*outer, kept, made))


def short_fourier(call: NodeCall) -> Operand:
    """Transform windows of a signal, one frame after the other."""
    m, source = call.math, call.real(0)
    if len(source.shape) == 2:
        source = m.unsqueeze(source, (2,))
    sizes = shape_of(source)
    step = _integer(call, 1, "frame_step")
    window = call.real(2) if call.has(2) else None
    length = _integer(call, 3, "frame_length") if call.has(3) else sizes[1] if window is None else shape_of(window)[0]
    if len(sizes) != 3 or sizes[2] not in (1, 2) or step < 1 or not 1 <= length <= sizes[1]:
        raise call.malformed(f"frames of {length} elements every {step} do not fit a signal of shape {sizes}")
    if window is not None and shape_of(window) != (length,):
        raise call.malformed(f"window: expect ({length},), got {shape_of(window)}")
    frames = 1 + (sizes[1] - length) // step
    call.folding.book((frames, length), np.dtype(np.int64))
    places = np.arange(frames)[:, None] * step + np.arange(length)
    cut = m.reshape(m.take(source, places.reshape(-1), 1), (sizes[0], frames, length, sizes[2]))
    if window is not None:
        cut = m.binary(cut, m.reshape(window, (1, 1, length, 1)), "mul")
    return _transform(call, cut, 2, length, False, bool(call.integer("onesided", 1)))


def mel_weights(call: NodeCall) -> Operand:
    """Return the triangles that add up frequencies to bins of the mel scale."""
    bins, length, rate = (_integer(call, index, what) for index, what in enumerate(("bins", "dft_length", "rate")))
    low, high = (float(call.known(index, "a frequency").reshape(())) for index in (3, 4))
    if bins < 1 or length < 1 or rate < 1 or not 0 <= low < high:
        raise call.malformed(f"{bins} bins of {length} elements at {rate} Hz, from {low} to {high} Hz")
    dtype = array_type(call.integer("output_datatype", 1))
    if dtype is None:
        raise call.unsupported(f"data type {call.integer('output_datatype')} is not supported")
    call.folding.book((length // 2 + 1, bins), np.dtype(np.float64))
    least, most = (2595 * math.log10(1 + each / 700) for each in (low, high))
    scale = np.arange(bins + 2) * ((most - least) / (bins + 2)) + least
    ends = ((length + 1) * (700 * (10 ** (scale / 2595) - 1)) // rate).astype(np.int64)
    if ends[-1] > length // 2 + 1:
        raise call.malformed(f"{high} Hz is beyond half of {rate} Hz")
    places = np.arange(length // 2 + 1)[:, None]
    start, middle, end = ends[:-2], ends[1:-1], ends[2:]
    with np.errstate(all="ignore"):
        rising = np.where(middle == start, 1.0 * (places == middle), (places - start) / (middle - start))
        falling = (end - places) / (end - middle)
    found = np.where((places >= start) & (places <= middle), rising, 0.0)
    return np.where((places >= middle) & (places < end), falling, found).astype(dtype)


def _integer(call: NodeCall, index: int, what: str) -> int:
    found = call.known(index, what)
    if found.size != 1 or found.dtype.kind not in "iu":
        raise call.malformed(f"{what}: expect one integer")
    return int(found.reshape(()))


OPERATORS: Final[Mapping[str, Operator]] = {"DFT": fourier, "STFT": short_fourier, "MelWeightMatrix": mel_weights}
