"""Recurrent networks on matmul: the inputs of all steps are one product, each step multiplies its state by one or two.

Every direction runs through all layers by itself. States and gates are in scratchpad; the results of the last layer of a
single direction are written, and read by the next step, where dst_layer is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Generic, NamedTuple, TypeVar

from poolrt.cachestore.deferred_dataclass import replace

from ...desc import Arg, Binary, Gru, Lstm, Matmul, MemoryDesc, PrimitiveAttr, Rnn, item_size
from ...engines.target import Target
from ..layouts import complete_layouts
from ..native.product_shape import packed_tag
from ..primitive_desc import PrimitiveDesc
from ..program import LaunchArgument, Program
from ..reference.attributes import refuse_attributes
from ..reference.tables import as_float32
from .builder import NestedBuilder, memory, shifted
from .product import MatrixView, NotNested, Operand, fast_matmul

Op = TypeVar("Op", Rnn, Lstm, Gru)
#: Weights (L, D, C, G, H), packed as products of matrices (C, G H) read them, and biases (L, D, G, H) that are added to these:
#: the channels of each gate are filled up to a multiple of 16.
_PACKED: Final = "abdEc16e"
_FILLED: Final = "abcD16d"
#: Channels of a gate that are filled up are at most so many times as many.
_FILLS: Final = 1.1
#: Engine kind -> data types.
_TYPES: Final = {"cpu": ("f32", "f64"), "opencl": ("f32",)}
#: Steps over all layers and directions at most: each has launches of its own.
_STEPS: Final = 4096
#: Bytes of weights that stay in the caches from step to step, and that all sequences read in a step: up to both, one kernel
#: computes all steps of a sequence without launches. Many sequences are faster as products of matrices.
_SMALL: Final = 80 << 10
_FEW_READ: Final = 160 << 10
#: Those of a single sequence, of cells of one product a step and of two, whose launches are twice as many.
_ALONE: Final = (160 << 10, 768 << 10)
#: The parts that the cell kernel computes, by number: whole cells, and the halves of a GRU with two products a step.
_CELLS: Final = ("rnn", "lstm", "lbr_gru", "gru_gates", "gru_state")


class NestedRecurrent(Generic[Op]):
    """f32 in any layouts, every direction and number of layers; f64 on the CPU."""

    name = "nested:matmul"
    general = True
    nests = True

    def __init__(self, engine_kind: str) -> None:
        self.engine_kind = engine_kind

    def reject(self, op: Op, attr: PrimitiveAttr, target: Target) -> str | None:
        if not attr.is_plain:
            return f"{op.kind} takes no scales or zero points"
        for desc in op.memories().values():
            if desc.dtype not in _TYPES[self.engine_kind]:
                return f"data type {desc.dtype}; only {' and '.join(_TYPES[self.engine_kind])} are supported"
            if desc.dtype != op.src_layer.dtype:
                return f"data types differ: {op.src_layer.dtype} and {desc.dtype}"
        if 0 in (*op.src_layer.dims, *op.weights_layer.dims):
            return "a tensor without elements"
        steps, layers = op.src_layer.dims[0], op.weights_layer.dims[0] * op.weights_layer.dims[1]
        if steps * layers > _STEPS:
            return f"{steps * layers} steps over all layers are more than {_STEPS}"
        why = refuse_attributes(op, attr)
        if why is not None:
            return why
        try:
            # The program of all steps takes longer to describe, and has no harder product.
            fast_matmul(_Network(complete_layouts(op), target).projection, PrimitiveAttr(), target)
        except NotNested as error:
            return str(error)
        return None

    def complete(self, op: Op, attr: PrimitiveAttr, target: Target) -> Op:
        both = (op.weights_layer, op.weights_iter)
        if target.engine_kind == "cpu" and _fills(op.weights_layer.dims[4], both):
            layer, each = (md.with_tag(_PACKED) if md.is_any else md for md in both)
            op = replace(op, weights_layer=layer, weights_iter=each)
        return complete_layouts(op)

    def program(self, op: Op, attr: PrimitiveAttr, target: Target) -> Program:
        return _Network(op, target).program()


#: Rows of all steps that are multiplied by weights as they are: packing the weights takes longer.
_FEW_ROWS: Final = 40


class _Ends(NamedTuple):
    """Where results go, row-major: of all steps of the last layer, and the last states h and c."""

    layer: LaunchArgument
    h: LaunchArgument | None
    c: LaunchArgument | None


class _Part(NamedTuple):
    """A part of a step: a product by some columns of the weights, and the cell's kernel that reads it."""

    cell: str
    product: Matmul
    weights: Operand
    products: LaunchArgument


class _State(NamedTuple):
    """The places of h and c before and after a step; None for a state of 0."""

    h: LaunchArgument | None
    after: LaunchArgument
    c: LaunchArgument | None
    keeps: LaunchArgument


class _Network:
    """Builds the program of one network."""

    def __init__(self, op: Rnn | Lstm | Gru, target: Target) -> None:
        self.op = op
        self.build = NestedBuilder(target)
        self.steps, self.batch, _ = op.src_layer.dims
        self.layers, self.directions, _, self.gates, self.hidden = op.weights_layer.dims
        self.dtype, self.size = op.src_layer.dtype, item_size(op.src_layer.dtype)
        self.state = MemoryDesc((self.batch, self.hidden), self.dtype)
        #: Results of a layer, for all steps.
        self.results = MemoryDesc((self.steps, self.batch, self.hidden), self.dtype)
        self.splits = isinstance(op, Gru) and not op.linear_before_reset
        packs = op.weights_layer.tag == op.weights_iter.tag == _PACKED
        #: Channels from gate to gate, of products and packed weights.
        self.apart = _filled(self.hidden) if packs else self.hidden
        self._chosen: dict[Matmul, PrimitiveDesc] = {}

    @property
    def projection(self) -> Matmul:
        """The product of the inputs of all steps."""
        width = self.gates * self.apart
        bias = None if self.op.bias is None else MemoryDesc((1, width), self.dtype)
        return self._product(self.steps * self.batch, self.op.weights_layer.dims[2], self.gates, bias, True)

    def _product(self, rows: int, inputs: int, gates: int, bias: MemoryDesc | None, once: bool) -> Matmul:
        """Return a product by the weights of some gates, which is computed ``once`` or at each step.

        It chooses their layout, unless a copy in another one would be made at each run for few rows.
        """
        left, dims, dst = (rows, inputs), (inputs, gates * self.apart), (rows, gates * self.apart)
        right = MemoryDesc(dims, self.dtype, "any")
        if self.apart % 16 and rows <= (_FEW_ROWS if once else 1):
            right = MemoryDesc(dims, self.dtype, strides=(self.gates * self.hidden, 1))
        return Matmul(MemoryDesc(left, self.dtype), right, bias, MemoryDesc(dst, self.dtype))

    def program(self) -> Program:
        op, c_end = self.op, getattr(self.op, "dst_iter_c", None)
        with (
            self._written(Arg.DST_1, op.dst_iter) as h,
            self._written(Arg.DST_2, c_end) as c,
            self._written(Arg.DST, op.dst_layer) as layer,
        ):
            if layer is None:
                raise TypeError("dst_layer is always there")
            ends = _Ends(layer, h, c)
            if self.directions == 1:
                self._direction(0, ends, layer)
            else:
                parts = [self.build.book(self.results.nbytes) for _ in range(2)]
                for direction, part in enumerate(parts):
                    self._direction(direction, ends, part)
                self._join(parts, layer)
        return self.build.program()

    @contextmanager
    def _written(self, arg: Arg, md: MemoryDesc | None) -> Iterator[LaunchArgument | None]:
        """Yield the place of a row-major result, None if it is not wanted."""
        if md is None:
            yield None
            return
        plain = md.with_tag("")
        with MatrixView(md, plain, plain).written(self.build, memory(arg)) as operand:
            yield operand.at

    def _join(self, parts: list[LaunchArgument], layer: LaunchArgument) -> None:
        """Add the two directions' results side by side, or their sum."""
        if self.op.direction == "bidirectional_sum":
            args: dict[int, LaunchArgument] = {Arg.SRC: parts[0], Arg.SRC_1: parts[1], Arg.DST: layer}
            self.build.compute(Binary(self.results, self.results, self.results, "add"), args)
            return
        strides = (2 * self.batch * self.hidden, 2 * self.hidden, 1)
        half = MemoryDesc(self.results.dims, self.dtype, strides=strides)
        for direction, part in enumerate(parts):
            self.build.move(self.results, part, half, shifted(layer, self.size * direction * self.hidden))

    def _direction(self, direction: int, ends: _Ends, results: LaunchArgument) -> None:
        """Add all layers of a direction, whose last one writes ``results``."""
        md = self.op.src_layer
        inputs = self.build.reorder_once(md, memory(Arg.SRC), md.with_tag(""))
        for layer in range(self.layers):
            to = results if layer == self.layers - 1 else self.build.book(self.results.nbytes)
            self._layer(layer, direction, inputs, ends, to)
            inputs = to

    def _layer(self, layer: int, direction: int, inputs: LaunchArgument, ends: _Ends, results: LaunchArgument) -> None:
        """Add the steps of one layer in one direction."""
        op, build, number = self.op, self.build, layer * self.directions + direction
        here = number * self.state.nbytes
        gates = self._projected(number, inputs)
        h, c = (self._given(arg, here) for arg in (Arg.SRC_1, Arg.SRC_2))
        kept = build.book(self.state.nbytes) if isinstance(op, Lstm) or self.splits else gates
        backwards = direction == 1 or op.direction == "right2left"
        if self._is_small:
            last_c = kept if ends.c is None else shifted(ends.c, here)
            self._all_steps(number, gates, (h, c), (kept, last_c), results, backwards)
            if ends.h is not None:
                after = shifted(results, 0 if backwards else (self.steps - 1) * self.state.nbytes)
                build.move(self.state, after, self.state, shifted(ends.h, here))
            return
        parts = self._parts(number)
        for step in reversed(range(self.steps)) if backwards else range(self.steps):
            last = step == (0 if backwards else self.steps - 1)
            keeps = shifted(ends.c, here) if last and ends.c is not None else kept
            x = shifted(gates, step * self.size * self.batch * self.gates * self.apart)
            after = shifted(results, step * self.state.nbytes)
            for part in parts:
                # The second product of a GRU is that of r * h, which the first half has left in place of c.
                left = kept if part.cell == "gru_state" and h is not None else h
                if left is not None:
                    self._multiply(part.product, left, part.weights, None, part.products)
                self._advance(part, number, x, _State(h, after, c, keeps))
            h, c = after, keeps if isinstance(op, Lstm) else None
        if ends.h is not None and h is not None:
            build.move(self.state, h, self.state, shifted(ends.h, here))

    @property
    def _is_small(self) -> bool:
        """Return whether launches would take longer than what they compute."""
        weights = self.size * self.gates * self.hidden**2
        small = _ALONE[self.splits] if self.batch == 1 else min(_SMALL, _FEW_READ // self.batch)
        return self.build.target.engine_kind == "cpu" and weights <= small

    def _all_steps(
        self,
        number: int,
        gates: LaunchArgument,
        given: tuple[LaunchArgument | None, LaunchArgument | None],
        kept: tuple[LaunchArgument, LaunchArgument],
        results: LaunchArgument,
        backwards: bool,
    ) -> None:
        """Add one launch for the steps of a layer: ``given`` are the first h and c, ``kept`` c between and after steps."""
        op, hidden = self.op, self.hidden
        (h, c), cell = given, "gru_gates" if self.splits else "lbr_gru" if isinstance(op, Gru) else op.kind
        weights = self._columns(op.weights_iter, Arg.WEIGHTS_1, number, 0, self.gates)
        other = self._columns(op.weights_iter, Arg.WEIGHTS_1, number, min(2, self.gates - 1), 1)
        is_packed = bool(weights.md.layout.blocks)
        row = 16 if is_packed else self.gates * hidden
        block = 16 * hidden if is_packed else 16
        room = _filled(self.gates * self.apart)
        bias = self._biases(number) if cell == "lbr_gru" else None
        added = None if bias is None else shifted(bias, self.size * 3 * self.apart)
        products = self.build.book(self.size * self.batch * room)
        # The kernel does not read absent operands.
        places = (
            gates, weights.at, other.at, products, h or gates, results, c or gates, *kept, added or gates,
            self._peepholes(number) or gates,
        )  # fmt: skip
        there = (int(h is not None), int(c is not None), int(added is not None))
        sizes = (self.size * row, self.size * block, self.size * room)
        numbers = (hidden, self.gates, self.apart, self.steps, self.batch, int(backwards), *sizes, *there)
        self._run("recurrent_steps", cell, places, numbers, self.batch)

    def _parts(self, number: int) -> list[_Part]:
        """Return the products of a step of a layer and direction by number, each with the cell's kernel behind it."""
        cell = "lbr_gru" if isinstance(self.op, Gru) else self.op.kind
        cells = [("gru_gates", 0, 2), ("gru_state", 2, 1)] if self.splits else [(cell, 0, self.gates)]
        parts = []
        for name, first, count in cells:
            product = self._product(self.batch, self.hidden, count, None, False)
            weights = self._columns(self.op.weights_iter, Arg.WEIGHTS_1, number, first, count)
            parts.append(_Part(name, product, weights, self.build.book(product.dst.nbytes)))
        return parts

    def _given(self, arg: Arg, offset: int) -> LaunchArgument | None:
        """Return the place of a first state, None if it is 0."""
        md = self.op.memories().get(arg)
        return None if md is None else shifted(self.build.reorder_once(md, memory(arg), md.with_tag("")), offset)

    def _projected(self, number: int, inputs: LaunchArgument) -> LaunchArgument:
        """Add the product of the inputs of all steps, and the bias; return the place of the gates (steps, batch, G, H)."""
        gates = self.build.book(self.projection.dst.nbytes)
        weights = self._columns(self.op.weights_layer, Arg.WEIGHTS, number, 0, self.gates)
        self._multiply(self.projection, inputs, weights, self._biases(number), gates)
        return gates

    def _biases(self, number: int) -> LaunchArgument | None:
        """Return the place of the biases of a layer and direction, None without any."""
        md = self.op.bias
        if md is None:
            return None
        wanted = md.with_tag("" if self.apart == self.hidden else _FILLED)
        place = self.build.reorder_once(md, memory(Arg.BIAS), wanted)
        return shifted(place, self.size * number * md.dims[2] * self.apart)

    def _peepholes(self, number: int) -> LaunchArgument | None:
        """Return the place of the factors of c of a layer and direction, None without any."""
        md = self.op.memories().get(Arg.WEIGHTS_2)
        if md is None:
            return None
        place = self.build.reorder_once(md, memory(Arg.WEIGHTS_2), md.with_tag(""))
        return shifted(place, self.size * number * 3 * self.hidden)

    def _columns(self, md: MemoryDesc, arg: Arg, number: int, first: int, count: int) -> Operand:
        """Return the weights of some gates as a matrix (inputs, count H)."""
        inputs = md.dims[2]
        dims = (inputs, count * self.apart)
        start = number * inputs * self.gates * self.apart
        if md.tag == _PACKED and self.apart % 16 == 0:
            place = shifted(memory(arg), self.size * (start + first * self.apart * inputs))
            return Operand(MemoryDesc(dims, self.dtype, packed_tag(2)), place)
        plain = self.build.reorder_once(md, memory(arg), md.with_tag(""))
        place = shifted(plain, self.size * (start + first * self.hidden))
        return Operand(MemoryDesc(dims, self.dtype, strides=(self.gates * self.hidden, 1)), place)

    def _multiply(
        self, op: Matmul, left: LaunchArgument, weights: Operand, bias: LaunchArgument | None, to: LaunchArgument
    ) -> None:
        """Add a product; its weights are reordered into the layout that it chooses, once for all steps."""
        pd = self._chosen.get(op)
        if pd is None:
            pd = self._chosen[op] = fast_matmul(op, PrimitiveAttr(), self.build.target)
        right = self.build.reorder_once(weights.md, weights.at, pd.op.memories()[Arg.WEIGHTS])
        args: dict[int, LaunchArgument] = {Arg.SRC: left, Arg.WEIGHTS: right, Arg.DST: to}
        self.build.execute(pd, args if bias is None else {**args, Arg.BIAS: bias})

    def _advance(self, part: _Part, number: int, x: LaunchArgument, state: _State) -> None:
        """Add the cell's kernel on W x + b and the product of a part."""
        bias = self._biases(number) if part.cell == "lbr_gru" else None
        added = None if bias is None else shifted(bias, self.size * 3 * self.apart)
        # The kernel does not read absent operands.
        seen = self._peepholes(number) or x
        places = (x, part.products, state.h or x, state.after, state.c or x, state.keeps, added or x, seen)
        there = (int(state.h is not None), int(state.c is not None), int(added is not None))
        numbers = (self.hidden, self.gates, self.apart, part.product.dst.dims[1], *there)
        items = self.batch * -(-self.hidden // self.build.width)
        self._run("recurrent_cell", part.cell, places, numbers, items)

    def _run(
        self, kernel: str, cell: str, places: Sequence[LaunchArgument], numbers: Sequence[int], items: int
    ) -> None:
        """Add the launch of a kernel that computes cells."""
        op = self.op
        activation, alpha = (op.activation, op.alpha) if isinstance(op, Rnn) else ("tanh", 0.0)
        self.build.run(
            kernel, places, numbers, items, items,
            cell=_CELLS.index(cell), activation=f"eltwise_{activation}", alpha=as_float32(alpha),
            **({} if self.dtype == "f32" else {"dtype": self.dtype}),
            **({"clip": op.clip} if op.clip else {}),
            **({"peepholes": True} if Arg.WEIGHTS_2 in op.memories() else {}),
            **_functions(op),
        )  # fmt: skip


def _functions(op: Rnn | Lstm | Gru) -> dict[str, str | float]:
    """Return the parameters of a kernel for functions of gated cells that are not the usual ones."""
    found: dict[str, str | float] = {}
    if not isinstance(op, Rnn):
        named = zip(
            ("gate", "candidate", "result"),
            ("logistic", "tanh", "tanh"),
            op.activations,
            op.alphas,
            op.betas,
            strict=False,
        )
        for name, usual, function, alpha, beta in named:
            if function != usual:
                constants = {f"{name}_alpha": as_float32(alpha), f"{name}_beta": as_float32(beta)}
                found |= {name: f"eltwise_{function}", **constants}
    return found


def _filled(channels: int) -> int:
    """Return channels filled up to a multiple of 16."""
    return -(-channels // 16) * 16


def _fills(channels: int, weights: Sequence[MemoryDesc]) -> bool:
    """Return whether weights whose layout is open are packed: products by both have the same channels from gate to gate."""
    alike = all(md.is_any or md.tag == _PACKED for md in weights)
    return channels % 16 == 0 or (alike and _filled(channels) <= _FILLS * channels)
