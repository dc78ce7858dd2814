"""Statements of functions in the language of kernels, lowered to LLVM's code."""

from __future__ import annotations

import ast
from types import FunctionType
from typing import NamedTuple

import llvmlite.ir as ir

from . import types
from .arithmetic import binary
from .expressions import Callees, Expressions
from .operands import Known, Operand, Refused, Typed, cast, is_number, typed
from .source_text import tree_of
from .stack import align_stack
from .variables import Names, Slot, Way, close_turn, join, new_slot


class Lowered(NamedTuple):
    """A function of LLVM's, and the types of its results: none, one, or those of a tuple."""

    function: ir.Function
    results: tuple[types.Type, ...]
    is_tuple: bool


class _Loop(NamedTuple):
    """The ways that leave a turn of a loop, and those that leave the loop."""

    turns: list[Way]
    exits: list[Way]


class Body(Expressions):
    """The body of a function for arguments of certain types."""

    def __init__(self, callees: Callees, function: FunctionType, arguments: tuple[types.Type | Operand, ...]) -> None:
        super().__init__(callees, function)
        self._tree = tree_of(function)
        self._arguments = arguments
        self._loops: list[_Loop] = []
        self._results: tuple[types.Type, ...] | None = None
        self._is_tuple = False

    def lower(self) -> Lowered:
        """Add the function to the module. Raises Refused."""
        try:
            return self._lower()
        except Refused as refused:
            if refused.place:
                raise
            raise Refused(refused.reason, f"{self.function.__code__.co_filename}:{self.line}") from refused

    def _lower(self) -> Lowered:
        given = self._tree.args
        names = [argument.arg for argument in (*given.posonlyargs, *given.args)]
        self.line = self._tree.lineno
        if len(names) != len(self._arguments) or given.vararg or given.kwarg or given.kwonlyargs:
            raise Refused(f"{self.function.__qualname__} takes {len(names)} arguments, not {len(self._arguments)}")
        kinds = [kind for kind in self._arguments if isinstance(kind, types.Type)]
        # The type of the result is set before any call.
        signature = ir.FunctionType(ir.VoidType(), [kind.lowered for kind in kinds])
        module = self.callees.module
        made = ir.Function(module, signature, module.get_unique_name(self.function.__name__))
        made.linkage = "internal"
        made.attributes.add("nounwind")
        align_stack(made)
        if getattr(self.function, "is_inlined", False):
            made.attributes.add("alwaysinline")
        if getattr(self.function, "is_not_inlined", False):
            made.attributes.add("noinline")
        entry = made.append_basic_block("entry")
        body = made.append_basic_block("body")
        self.b = b = ir.IRBuilder(entry)
        b.branch(body)
        b.position_at_end(body)
        values = iter(made.args)
        for name, argument in zip(names, self._arguments, strict=True):
            if isinstance(argument, types.Type):
                self.assign(name, Typed(argument, next(values)))
            else:
                self.names[name] = argument
        self._block(self._tree.body)
        if not b.block.is_terminated:
            if self._results:
                raise Refused(f"{self.function.__qualname__} does not return a value on every way")
            b.ret_void()
        results = self._results or ()
        if results:
            lowered = [kind.lowered for kind in results]
            signature.return_type = ir.LiteralStructType(lowered) if self._is_tuple else lowered[0]
            made.return_value = ir.values.ReturnValue(made, signature.return_type)
        return Lowered(made, results, self._is_tuple)

    def assign(self, name: str, operand: Operand) -> None:
        """Assign a value to a variable, or name something that is no value."""
        if not is_number(operand):
            self.names[name] = operand
            return
        value = typed(operand)
        slot = self.names.get(name)
        if not isinstance(slot, Slot) or slot.kind != value.kind:
            slot = self.names[name] = new_slot(self.b, value.kind)
        self.b.store(value.value, slot.place)

    def _block(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            if self.b.block.is_terminated:
                return  # nothing reaches it
            self.line = statement.lineno
            lower = getattr(self, f"_{type(statement).__name__.lower()}", None)
            if lower is None:
                raise Refused(f"kernels have no {type(statement).__name__}")
            lower(statement)

    def _expr(self, node: ast.Expr) -> None:
        self.lower_expression(node.value)

    def _pass(self, node: ast.Pass) -> None:
        pass

    def _assign(self, node: ast.Assign) -> None:
        value = self.lower_expression(node.value)
        for target in node.targets:
            self._assign_to(target, value)

    def _annassign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._assign_to(node.target, self.lower_expression(node.value))

    def _augassign(self, node: ast.AugAssign) -> None:
        if not isinstance(node.target, ast.Name):
            raise Refused("kernels assign to names only")
        before = self.read(node.target.id)
        self.assign(node.target.id, binary(self.b, type(node.op), before, self.lower_expression(node.value)))

    def _assign_to(self, target: ast.expr, value: Operand) -> None:
        if isinstance(target, ast.Name):
            self.assign(target.id, value)
        elif isinstance(target, ast.Tuple):
            if isinstance(value, Known) and isinstance(value.object, tuple):
                value = tuple(Known(each) for each in value.object)
            if not isinstance(value, tuple) or len(value) != len(target.elts):
                raise Refused(f"expect a tuple of {len(target.elts)}")
            for each, part in zip(target.elts, value, strict=True):
                self._assign_to(each, part)
        else:
            raise Refused("kernels assign to names only")

    def _return(self, node: ast.Return) -> None:
        value = self.lower_expression(node.value) if node.value is not None else Known(None)
        parts: list[Typed] = []
        if isinstance(value, tuple):
            parts = [typed(one) for one in value]
        elif not (isinstance(value, Known) and value.object is None):
            parts = [typed(value)]
        if self._results is None:
            self._results, self._is_tuple = tuple(part.kind for part in parts), isinstance(value, tuple)
        if len(parts) != len(self._results) or isinstance(value, tuple) != self._is_tuple:
            raise Refused("expect as many results as of the first return")
        for part, kind in zip(parts, self._results, strict=True):
            if isinstance(kind, types.Integer | types.Boolean) and part.kind != kind:
                raise Refused(f"it returns {part.kind} here and {kind} before: return {part.kind} there, too")
        values = [cast(self.b, part, kind) for part, kind in zip(parts, self._results, strict=True)]
        if self._is_tuple:
            whole = ir.Constant(ir.LiteralStructType([kind.lowered for kind in self._results]), ir.Undefined)
            for index, one in enumerate(values):
                whole = self.b.insert_value(whole, one, index)
            self.b.ret(whole)
        elif values:
            self.b.ret(values[0])
        else:
            self.b.ret_void()

    def _if(self, node: ast.If) -> None:
        condition = self.lower_condition(node.test)
        if isinstance(condition, Known):
            self._block(node.body if condition.object else node.orelse)
            return
        b, before = self.b, self.names
        then, otherwise = b.append_basic_block("then"), b.append_basic_block("else")
        b.cbranch(condition.value, then, otherwise)
        ways: list[Way] = []
        for block, statements in ((then, node.body), (otherwise, node.orelse)):
            b.position_at_end(block)
            self.names = dict(before)
            self._block(statements)
            if not b.block.is_terminated:
                ways.append((b.block, self.names))
        self._continue_after(ways, "joined")

    def _continue_after(self, ways: list[Way], name: str) -> None:
        """Go on where several ways meet; if none does, the block stays a terminated one."""
        if ways:
            target = self.b.append_basic_block(name)
            self.names = join(self.b, ways, target)
            self.b.position_at_end(target)

    def _while(self, node: ast.While) -> None:
        if node.orelse:
            raise Refused("loops have no else")
        b = self.b
        head = b.append_basic_block("while")
        b.branch(head)
        b.position_at_end(head)
        before = self.names
        loop = _Loop([], [])
        self._loops.append(loop)
        self.names = dict(before)
        condition = self.lower_condition(node.test)
        if isinstance(condition, Known):
            if not condition.object:
                loop.exits.append((b.block, self.names))
        else:
            body, done = b.append_basic_block("turn"), b.append_basic_block("ended")
            b.cbranch(condition.value, body, done)
            loop.exits.append((done, dict(self.names)))
            b.position_at_end(body)
        if not (isinstance(condition, Known) and not condition.object):
            self._block(node.body)
            if not b.block.is_terminated:
                loop.turns.append((b.block, self.names))
        self._loops.pop()
        for way in loop.turns:
            close_turn(b, way, before, head)
        self._leave_loop(loop, before)

    def _leave_loop(self, loop: _Loop, before: Names) -> None:
        """Go on after a loop; variables that turns have assigned first are there, too."""
        later: Names = {}
        for _, names in loop.turns:
            for name, operand in names.items():
                if name not in before and isinstance(operand, Slot):
                    later.setdefault(name, operand)
        ways = [(block, {**later, **names}) for block, names in loop.exits]
        self._continue_after(ways, "after")

    def _for(self, node: ast.For) -> None:
        if node.orelse or not isinstance(node.target, ast.Name):
            raise Refused("kernels have loops over a range, with one variable and without else")
        call = node.iter
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "range"):
            raise Refused("kernels have loops over a range only")
        b = self.b
        given = [self.lower_expression(each) for each in call.args]
        if not 1 <= len(given) <= 3:
            raise Refused(f"a range has one to three arguments, not {len(given)}")
        first, last = (Known(0), given[0]) if len(given) == 1 else (given[0], given[1])
        step = given[2] if len(given) == 3 else Known(1)
        kind = types.int64
        for one in (first, last, step):
            if not isinstance(typed(one).kind, types.Integer | types.Boolean):
                raise Refused(f"a range is of whole numbers, not of {typed(one).kind}")
        counter = new_slot(b, kind)
        b.store(cast(b, first, kind), counter.place)
        end, distance = cast(b, last, kind), cast(b, step, kind)
        head, body, done = (b.append_basic_block(name) for name in ("for", "turn", "ended"))
        latch = b.append_basic_block("next")
        b.branch(head)
        b.position_at_end(head)
        number = b.load(counter.place)
        b.cbranch(self._is_inside(number, end, step, distance), body, done)
        b.position_at_end(body)
        before = self.names
        loop = _Loop([], [(done, dict(before))])
        self._loops.append(loop)
        self.names = dict(before)
        self.assign(node.target.id, Typed(kind, number))
        self._block(node.body)
        if not b.block.is_terminated:
            loop.turns.append((b.block, self.names))
        self._loops.pop()
        for way in loop.turns:
            close_turn(b, way, before, latch)
        b.position_at_end(latch)
        if loop.turns:
            # It was below the end, or above it: with a step of one, it does not overflow.
            flags = ("nsw",) if isinstance(step, Known) and abs(step.object) == 1 else ()
            b.store(b.add(number, distance, flags=flags), counter.place)
            b.branch(head)
        else:
            b.unreachable()
        self._leave_loop(loop, before)

    def _is_inside(self, number: ir.Value, end: ir.Value, step: Operand, distance: ir.Value) -> ir.Value:
        """Return whether a number of a range is before its end. A step of 0 gives an empty range."""
        b, zero = self.b, distance.type(0)
        if isinstance(step, Known) and step.object:
            return b.icmp_signed("<" if step.object > 0 else ">", number, end)
        rises, falls = b.icmp_signed(">", distance, zero), b.icmp_signed("<", distance, zero)
        before = b.and_(rises, b.icmp_signed("<", number, end))
        return b.or_(before, b.and_(falls, b.icmp_signed(">", number, end)))

    def _break(self, node: ast.Break) -> None:
        self._leave(self._loops[-1].exits)

    def _continue(self, node: ast.Continue) -> None:
        self._leave(self._loops[-1].turns)

    def _leave(self, ways: list[Way]) -> None:
        """End this way in a block of its own, which is ended later; nothing follows it here."""
        block = self.b.append_basic_block("left")
        self.b.branch(block)
        ways.append((block, self.names))
