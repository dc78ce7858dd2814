"""Expressions of functions in the language of kernels, lowered to LLVM's code."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable
from functools import partial
from types import FunctionType
from typing import Any, Protocol

import llvmlite.ir as ir

from . import types
from .arithmetic import FUNCTIONS, binary, compare, unary
from .language import Intrinsic
from .operands import Known, Operand, Refused, Typed, cast, common, is_number, typed
from .variables import Names, Slot


class Callees(Protocol):
    """The functions that a function calls, and the module of LLVM's for all of them."""

    module: ir.Module

    def call(self, b: ir.IRBuilder, callee: Any, given: list[Operand]) -> Operand:
        """Call a function or an intrinsic."""
        ...


class Expressions:
    """Lowers the expressions of a function, whose variables are ``names``."""

    b: ir.IRBuilder

    def __init__(self, callees: Callees, function: FunctionType) -> None:
        self.callees = callees
        self.function = function
        self.names: Names = {}
        #: The line of the statement that is lowered.
        self.line = 0
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        self._around = {name: cell.cell_contents for name, cell in cells}

    def lower_expression(self, node: ast.expr) -> Operand:
        """Return the operand that an expression gives. Raises Refused."""
        lower = getattr(self, f"_{type(node).__name__.lower()}", None)
        if lower is None:
            raise Refused(f"kernels have no {type(node).__name__}")
        found: Operand = lower(node)
        return found

    def lower_condition(self, node: ast.expr) -> Known | Typed:
        """Return whether an expression is true: known, or a boolean value. Numbers are true if they are not 0."""
        if isinstance(node, ast.BoolOp):
            return self._all_or_any(node)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            inner = self.lower_condition(node.operand)
            if isinstance(inner, Known):
                return Known(not inner.object)
            return Typed(types.boolean, self.b.not_(inner.value))
        return self._truth(self.lower_expression(node))

    def read(self, name: str) -> Operand:
        """Return what a name stands for."""
        found = self.names.get(name)
        if isinstance(found, Slot):
            return found.read(self.b)
        if found is not None:
            return found
        if name in self.function.__code__.co_varnames:
            raise Refused(f"{name} has no value here, or different things")
        for known in (self._around, self.function.__globals__, vars(builtins)):
            if name in known:
                return Known(known[name])
        raise Refused(f"{name} is not defined")

    def _truth(self, operand: Operand) -> Known | Typed:
        if isinstance(operand, Typed):
            return Typed(types.boolean, cast(self.b, operand, types.boolean))
        return Known(bool(operand.object if isinstance(operand, Known) else operand))

    def _all_or_any(self, node: ast.BoolOp) -> Known | Typed:
        """Return whether all, or any, of several conditions are true; the rest is not computed once that is certain."""
        return self._until([partial(self.lower_condition, each) for each in node.values], isinstance(node.op, ast.Or))

    def _until(self, conditions: list[Callable[[], Known | Typed]], stop: bool) -> Known | Typed:
        """Return ``stop`` if one of several conditions is, else the opposite."""
        b = self.b
        ends: list[tuple[ir.Value, ir.Block]] = []
        done: ir.Block | None = None
        last: Known | Typed = Known(not stop)
        for index, lower in enumerate(conditions):
            last = lower()
            if isinstance(last, Known):
                if bool(last.object) == stop:
                    break
                last = Known(not stop)
                continue
            if index + 1 < len(conditions):
                done = done or b.append_basic_block("decided")
                following = b.append_basic_block("condition")
                ends.append((types.boolean.lowered(int(stop)), b.block))
                b.cbranch(last.value, *((done, following) if stop else (following, done)))
                b.position_at_end(following)
                last = Known(not stop)
        if done is None:
            return last
        value = last.value if isinstance(last, Typed) else types.boolean.lowered(int(bool(last.object)))
        ends.append((value, b.block))
        b.branch(done)
        b.position_at_end(done)
        found = b.phi(types.boolean.lowered)
        for each, block in ends:
            found.add_incoming(each, block)
        return Typed(types.boolean, found)

    def _constant(self, node: ast.Constant) -> Operand:
        return Known(node.value)

    def _name(self, node: ast.Name) -> Operand:
        return self.read(node.id)

    def _attribute(self, node: ast.Attribute) -> Operand:
        base = self.lower_expression(node.value)
        if not isinstance(base, Known):
            raise Refused(f"a value has no attribute {node.attr}")
        return Known(getattr(base.object, node.attr))

    def _tuple(self, node: ast.Tuple) -> Operand:
        parts = tuple(self.lower_expression(each) for each in node.elts)
        if all(isinstance(part, Known) for part in parts):
            return Known(tuple(part.object for part in parts if isinstance(part, Known)))
        return parts

    def _subscript(self, node: ast.Subscript) -> Operand:
        base, index = self.lower_expression(node.value), self.lower_expression(node.slice)
        if not isinstance(index, Known) or isinstance(base, Typed):
            raise Refused("an index is known, and of something that is known or of a tuple")
        if isinstance(base, Known):
            return Known(base.object[index.object])
        return base[index.object]

    def _binop(self, node: ast.BinOp) -> Operand:
        left = self.lower_expression(node.left)
        return binary(self.b, type(node.op), left, self.lower_expression(node.right))

    def _unaryop(self, node: ast.UnaryOp) -> Operand:
        if isinstance(node.op, ast.Not):
            return self.lower_condition(node)
        return unary(self.b, type(node.op), self.lower_expression(node.operand))

    def _boolop(self, node: ast.BoolOp) -> Operand:
        found = self._until([partial(self._boolean, each) for each in node.values], isinstance(node.op, ast.Or))
        return found

    def _boolean(self, node: ast.expr) -> Known | Typed:
        operand = self.lower_expression(node)
        if isinstance(operand, Known) and isinstance(operand.object, bool):
            return operand
        if isinstance(operand, Typed) and operand.kind == types.boolean:
            return operand
        raise Refused("`and` and `or` are of truth values, except in a condition")

    def _compare(self, node: ast.Compare) -> Operand:
        left = self.lower_expression(node.left)
        if len(node.ops) == 1:
            return self._compared(node.ops[0], left, node.comparators[0])[0]
        # What is between two operators is computed once.
        middle = [left]

        def one(operation: ast.cmpop, right: ast.expr) -> Known | Typed:
            found, other = self._compared(operation, middle[-1], right)
            middle.append(other)
            return found

        pairs = zip(node.ops, node.comparators, strict=True)
        return self._until([partial(one, *pair) for pair in pairs], False)

    def _compared(self, operation: ast.cmpop, left: Operand, right: ast.expr) -> tuple[Known | Typed, Operand]:
        other = self.lower_expression(right)
        if isinstance(operation, ast.In | ast.NotIn):
            found = self._is_in(left, other)
            if isinstance(operation, ast.In):
                return found, other
            return self._truth(unary(self.b, ast.Not, found)), other
        return self._truth(compare(self.b, type(operation), left, other)), other

    def _is_in(self, left: Operand, group: Operand) -> Known | Typed:
        if isinstance(group, Typed):
            raise Refused("a value has no items")
        if isinstance(left, Known) and isinstance(group, Known):
            return Known(left.object in group.object)
        items = group if isinstance(group, tuple) else tuple(Known(item) for item in group.object)
        same = [self._truth(compare(self.b, ast.Eq, left, item)) for item in items]
        found = same[0]
        for other in same[1:]:
            values = (cast(self.b, found, types.boolean), cast(self.b, other, types.boolean))
            found = Typed(types.boolean, self.b.or_(*values))
        return found

    def _ifexp(self, node: ast.IfExp) -> Operand:
        condition = self.lower_condition(node.test)
        if isinstance(condition, Known):
            return self.lower_expression(node.body if condition.object else node.orelse)
        b = self.b
        then, otherwise, done = (b.append_basic_block(name) for name in ("then", "else", "chosen"))
        b.cbranch(condition.value, then, otherwise)
        ends: list[tuple[Typed, ir.Block]] = []
        for block, part in ((then, node.body), (otherwise, node.orelse)):
            b.position_at_end(block)
            operand = self.lower_expression(part)
            if not is_number(operand):
                raise Refused("a choice by a value is between values")
            ends.append((typed(operand), b.block))
        kind = common(*(value.kind for value, _ in ends))
        incoming = []
        for value, block in ends:
            b.position_at_end(block)
            incoming.append((cast(b, value, kind), block))
            b.branch(done)
        b.position_at_end(done)
        found = b.phi(kind.lowered)
        for each, block in incoming:
            found.add_incoming(each, block)
        return Typed(kind, found)

    def _call(self, node: ast.Call) -> Operand:
        callee = self.lower_expression(node.func)
        if not isinstance(callee, Known):
            raise Refused("a value is called")
        if node.keywords or any(isinstance(each, ast.Starred) for each in node.args):
            raise Refused("arguments of calls have no names and no stars")
        given = [self.lower_expression(each) for each in node.args]
        target: Any = callee.object
        if isinstance(target, Intrinsic | FunctionType):
            return self.callees.call(self.b, target, given)
        if target is len and len(given) == 1 and not isinstance(given[0], Typed):
            return Known(len(given[0].object if isinstance(given[0], Known) else given[0]))
        emit = FUNCTIONS.get(target) if callable(target) else None
        if emit is None:
            raise Refused(f"kernels call no {target!r}")
        return emit(self.b, given)
