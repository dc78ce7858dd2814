"""Runs in stages: a model that no single plan computes is cut where a size or value has to be known.

The import of a whole model names the first node that reads a size or a value which only a run knows. What this node reads is
computed by a plan of its own, and the plan of the rest is made for the sizes that are found. The rest may be cut again.
Guarantees: where a model is cut is found once, and no plan is made twice; plans of all stages are in one bound of bytes.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from poolrt.cachestore.deferred_dataclass import dataclass, replace
from poolrt.cachestore.forked_locks import freed_in_children
from poolrt.graph.errors import GraphError, ModelError, UnsupportedNode
from poolrt.graph.onnx.element_types import array_type
from poolrt.settings import Settings

from .courses import COURSES, Compute, Course, find_course
from .errors import InvalidGraph, not_implemented
from .logs import LOG
from .options import SessionOptions
from .parts import Body, Part
from .random_nodes import RandomNode, find_random_node
from .session_model import SessionModel
from .string_nodes import StringNodes
from .strings import number_of_array

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .plans import Plans

    Arrays: TypeAlias = Mapping[str, NDArray[Any]]

#: Elements of an input that the shapes of a plan may depend on: there is a plan for each value of it.
MOST_VALUES: Final = 64
#: Stages of one model, those of branches and of the passes of loops included.
MOST_STAGES: Final = 256
#: Tensors that the message of a later stage names.
_MOST_SHOWN: Final = 4


@dataclass(frozen=True, slots=True)
class Whole:
    """The whole model as the first part, which is looked into only if it has to be cut."""

    model: SessionModel
    label: str = ""

    def graph(self, shapes: Mapping[str, Sequence[int]], values: Arrays) -> Any:
        """Return the graph for inputs of these shapes and values. Raises InvalidGraph and NotImplemented."""
        return self.model.graph(shapes, values)


@dataclass(eq=False)
class Stage:
    """A part of the model, and how it is computed: by plans, or by two stages, one after the other, or node by node.

    ``values`` are its inputs that shapes depend on, as far as runs have shown. ``is_late`` says that stages before it compute
    some of its inputs. ``is_settled`` says that it has no strings, or is cut between them and the rest; ``passed`` are its
    outputs that are strings which it does not compute.
    """

    part: Whole | Part
    is_late: bool = False
    values: frozenset[str] = frozenset()
    after: tuple[Stage, Stage] | Course | RandomNode | StringNodes | None = None
    is_settled: bool = False
    passed: tuple[str, ...] = ()


class Stages:
    """Runs a model on inputs of any sizes, in one stage if the import allows it. Threads may run at once."""

    def __init__(self, model: SessionModel, plans: Plans, is_verbose: bool, seed: int | None = None) -> None:
        """``is_verbose``: the log names what is found out about a model. ``seed`` is that of nodes which have none."""
        self._model = model
        self._plans = plans
        self._is_verbose = is_verbose
        self._seed = seed
        self._lock = freed_in_children(threading.RLock())
        self._labels = 0
        self._whole = Stage(model.whole_part() if model.has_strings else Whole(model))

    def run(self, arrays: Arrays, into: Arrays) -> dict[str, NDArray[Any]]:
        """Return the outputs of the model by name, bfloat16 as uint16; see `Plans.run`."""
        outputs = self._run(self._whole, arrays, {name: array for name, array in into.items() if array.dtype != object})
        if self._model.has_strings:
            # Strings may be the model's own array, which the caller must not get.
            return {name: array.copy() if array.dtype == object else array for name, array in outputs.items()}
        return outputs

    def prepare(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Make the plan for inputs of these shapes: that of the first stage only, if the sizes of others are not known.

        Nor are the values that an import may ask for.
        """
        stage = self._whole
        while True:
            self._settle(stage)
            if stage.after is None and _computes(stage):
                try:
                    self._plans.prepare(stage.part, {name: shapes[name] for name in self._inputs(stage, shapes)})
                except ModelError as error:
                    self._learn(stage, error, {name: int(np.prod(dims)) for name, dims in shapes.items()})
            if not isinstance(stage.after, tuple):
                return
            stage = stage.after[0]

    def cuts(self) -> list[tuple[str, ...]]:
        """Return the names of the tensors at which the model is cut, as far as runs have shown; none for one stage."""
        return list(_cuts(self._whole))

    def _inputs(self, stage: Stage, arrays: Mapping[str, Any]) -> Sequence[str]:
        return stage.part.inputs if isinstance(stage.part, Part) else tuple(arrays)

    def _run(self, stage: Stage, arrays: Arrays, into: Arrays) -> dict[str, NDArray[Any]]:
        names = self._inputs(stage, arrays)
        self._require(names, arrays)
        given = {name: arrays[name] for name in names}
        if isinstance(stage.part, Part):
            stage.part.body.types.update({name: number_of_array(array) for name, array in given.items()})
        self._settle(stage)
        if not stage.passed:
            return self._compute(stage, given, into)
        constants = stage.part.body.constants if isinstance(stage.part, Part) else {}
        self._require(stage.passed, {**constants, **arrays})
        passed = {name: arrays[name] if name in arrays else constants[name] for name in stage.passed}
        left = {name: given[name] for name in self._inputs(stage, given)}
        return {**self._compute(stage, left, into), **passed}

    def _require(self, names: Sequence[str], arrays: Mapping[str, Any]) -> None:
        """Raise InvalidGraph if there is no tensor of a name."""
        missing = [name for name in names if name not in arrays]
        if missing:
            raise InvalidGraph(f"{self._model.name}: no node computes {', '.join(map(repr, missing[:_MOST_SHOWN]))}")

    def _compute(self, stage: Stage, given: Arrays, into: Arrays) -> dict[str, NDArray[Any]]:
        if stage.after is None and not _computes(stage):
            return {}
        while stage.after is None:
            strings = [name for name, array in given.items() if array.dtype.kind == "O"]
            if strings:
                raise InvalidGraph(
                    f"{self._model.name}: by the types of the model, {strings[0]!r} has numbers, not strings"
                )
            # A tensor without elements is no input of a plan, which is for its shape as for a value.
            values = {name: array for name, array in given.items() if name in stage.values or not array.size}
            inputs = {name: array for name, array in given.items() if name not in values}
            try:
                outputs = dict(self._plans.run(stage.part, inputs, values, into))
            except ModelError as error:
                self._learn(stage, error, {name: array.size for name, array in inputs.items()}, given)
            else:
                return _typed(stage.part, outputs)
        if not isinstance(stage.after, tuple):
            return stage.after.run(given)
        first, rest = stage.after
        # Arrays of ``into`` may be inputs, which the second stage reads.
        found = self._run(first, given, {})
        return {**found, **self._run(rest, {**given, **found}, into)}

    def _settle(self, stage: Stage) -> None:
        """Cut a stage between nodes of strings and others, when the types of its inputs are known."""
        if stage.is_settled:
            return
        with self._lock:
            part = stage.part
            # Another thread may have done it meanwhile.
            if _is_settled(stage) or isinstance(part, Whole):
                return
            body = part.body
            if part.members & body.of_strings:
                pair = part.cut_at_strings(self._label)
                if pair is None:
                    stage.after = StringNodes(part, self._model.opset, self._start)
                else:
                    stage.after = Stage(pair[0], stage.is_late), Stage(pair[1], True)
            else:
                stage.passed = tuple(name for name in part.outputs if name in body.strings)
                left = tuple(name for name in part.outputs if name not in body.strings)
                stage.part = replace(part, outputs=left)
            stage.is_settled = True

    def _learn(self, stage: Stage, error: ModelError, sizes: Mapping[str, int], given: Arrays | None = None) -> None:
        """Note which values a stage asks for, or cut it; raise the error if neither helps."""
        with self._lock:
            if stage.after is not None:
                return
            stop = stopped_at(error)
            asked = error.asked if isinstance(error, UnsupportedNode) else ()
            asked = tuple(name for name in asked if sizes.get(name, MOST_VALUES + 1) <= MOST_VALUES)
            if asked and not self._is_course(stage, stop):
                stage.values |= frozenset(asked)
                self._tell(f"the sizes depend on the values of {', '.join(asked)}")
                return
            after = self._cut(stage, stop) if stop and self._labels < MOST_STAGES else None
            if after is None:
                why = f"; a run would take more than {MOST_STAGES} stages" if self._labels >= MOST_STAGES else ""
                raise _of_stage(stage, error, given or {}, why)
            stage.after = after
            if isinstance(after, tuple):
                names = ", ".join(_outputs(after[0]))
                self._tell(f"a run ends a stage with {names}: {stop} depends on their sizes or values")

    def _is_course(self, stage: Stage, stop: str) -> bool:
        """Return whether a later stage ended at a loop: its passes are run one by one, and not known for a plan."""
        node = stage.part.node_of(stop) if isinstance(stage.part, Part) and stop else None
        return node is not None and node.op_type in COURSES and node.op_type != "If"

    def _cut(self, stage: Stage, stop: str) -> tuple[Stage, Stage] | Course | RandomNode | None:
        part = self._model.whole_part() if isinstance(stage.part, Whole) else stage.part
        pair = part.cut(stop, self._label)
        if pair is not None:
            return Stage(pair[0], stage.is_late), Stage(pair[1], True)
        return find_course(part, self._start) or find_random_node(part, self._start, self._seed)

    def _start(self, body: Body, outputs: Sequence[str]) -> Compute:
        """Return what computes outputs of the body of a branch."""
        stage = Stage(body.whole(outputs, self._label()), True)
        return lambda arrays: self._run(stage, arrays, {})

    def _label(self) -> str:
        self._labels += 1
        return f"stage {self._labels}:"

    def _tell(self, text: str) -> None:
        if self._is_verbose:
            LOG.info("%s: %s", self._model.name, text)


def computes_strings(source: Any) -> bool:
    """Return whether a model computes with strings, and sessions have all that it needs for that."""
    try:
        model = SessionModel(source, SessionOptions(), Settings.load(), "cpu")
    except GraphError:
        return False
    return model.has_strings or bool(model.texts)


def _is_settled(stage: Stage) -> bool:
    return stage.is_settled


def _computes(stage: Stage) -> bool:
    """Return whether a stage has outputs beside those that it passes on."""
    return isinstance(stage.part, Whole) or bool(stage.part.outputs)


def _typed(part: Whole | Part, outputs: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return the outputs of a later stage's plan in their types: bfloat16 for the uint16 of its bits."""
    if isinstance(part, Whole):
        return outputs
    found = {}
    for name, array in outputs.items():
        wanted = array_type(part.body.types[name])
        found[name] = array if wanted is None or array.dtype == wanted else array.view(wanted)
    return found


def stopped_at(error: BaseException | None) -> str:
    """Return the first result of the node that reads what only a run knows, empty if the error is another one."""
    while error is not None:
        if isinstance(error, ModelError) and error.stopped_at:
            return error.stopped_at
        error = error.__cause__
    return ""


def _of_stage(stage: Stage, error: ModelError, given: Arrays, why: str) -> ModelError:
    """Return an error that says in which stage it is, and why the stage is not cut."""
    if not stage.is_late or isinstance(stage.part, Whole):
        return error
    shown = [f"{name} {array.dtype}{list(array.shape)}" for name, array in given.items()]
    more = len(shown) - _MOST_SHOWN
    listed = ", ".join(shown[:_MOST_SHOWN]) + (f" and {more} more" if more > 0 else "")
    where = f"; in a later stage of the run, given {listed or 'no tensors'}{why}"
    if isinstance(error, UnsupportedNode):
        uses = tuple(
            replace(each, reason=error.reason + where) if each.reason == error.reason else each for each in error.uses
        )
        found = UnsupportedNode(error.node, error.operator, error.opset, error.reason + where, uses)
        found.asked = error.asked
        return not_implemented(found)
    return InvalidGraph(f"{error}{where}")


def _cuts(stage: Stage) -> list[tuple[str, ...]]:
    if not isinstance(stage.after, tuple):
        return []
    first, rest = stage.after
    return [*_cuts(first), _outputs(first), *_cuts(rest)]


def _outputs(stage: Stage) -> tuple[str, ...]:
    return stage.part.outputs if isinstance(stage.part, Part) else ()
