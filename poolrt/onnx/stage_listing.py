"""Where a session cuts a model into stages, and the plans of these stages as far as they are known before a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from poolrt.cachestore.deferred_dataclass import dataclass
from poolrt.graph.errors import ModelError, UnsupportedNode
from poolrt.graph.onnx.operators.random_numbers import draws
from poolrt.graph.onnx.ports import known_input, open_input
from poolrt.model_check import ModelCheck, check_model
from poolrt.settings import Settings

from .courses import COURSES
from .options import SessionOptions
from .parts import Part
from .session_model import SessionModel
from .stages import MOST_STAGES, stopped_at

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True, slots=True)
class ListedStage:
    """A stage: its nodes by operator, and the tensors with which it ends.

    ``check`` is its plan. If that is None, ``waits_for`` names tensors whose sizes or values only a run knows, or ``course`` is
    the If, Loop or Scan that a run takes branch by branch or pass by pass, or ``draws`` the operator by which a run draws random
    numbers, or ``error`` is why sessions have no plan for it.
    """

    operators: Mapping[str, int]
    ends_with: tuple[str, ...]
    check: ModelCheck | None = None
    waits_for: tuple[str, ...] = ()
    course: str = ""
    draws: str = ""
    error: str = ""


def list_stages(
    source: Any,
    error: BaseException,
    *,
    batch: int | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    values: Mapping[str, ArrayLike] | None = None,
    settings: Settings | None = None,
) -> tuple[ListedStage, ...]:
    """Return the stages of a model whose import raised an error, in their order; none if sessions do not cut it.

    The arguments are those of `poolrt.check_model`. A model with strings is not looked into. Raises what a session raises.
    """
    if not stopped_at(error):
        return ()
    settings = settings or Settings.load()
    model = SessionModel(source, SessionOptions(), settings, "cpu")
    if model.has_strings:
        return ()
    given, sizes = _inputs(model, batch, shapes or {}, values or {})
    asked = error.asked if isinstance(error, UnsupportedNode) else ()
    found = _Listing(settings, given, sizes).list(model.whole_part())
    # A session makes plans for values that it is given: the model is not cut for them alone.
    return () if len(found) == 1 and (asked or not (found[0].course or found[0].draws)) else tuple(found)


class _Listing:
    """Cuts a part as a session does; ``sizes`` are the shapes of tensors that are known before a run."""

    def __init__(
        self, settings: Settings, given: Mapping[str, NDArray[Any]], sizes: dict[str, tuple[int, ...]]
    ) -> None:
        self._settings = settings
        self._given = given
        self._sizes = sizes
        self._parts = 0

    def list(self, whole: Part) -> list[ListedStage]:
        found: list[ListedStage] = []
        left = [whole]
        while left:
            part = left.pop()
            listed = self._stage(part)
            if isinstance(listed, tuple):
                left += reversed(listed)
            else:
                found.append(listed)
        return found

    def _stage(self, part: Part) -> ListedStage | tuple[Part, Part]:
        """Return a part as a stage, or the two parts into which a session cuts it."""
        operators = Counter(str(part.body.nodes[number].op_type) for number in sorted(part.members))
        about = dict(operators.most_common()), part.outputs
        needed = [name for name in part.inputs if name not in self._given]
        unknown = tuple(name for name in needed if name not in self._sizes)
        if unknown:
            return ListedStage(*about, waits_for=unknown)
        values = {name: self._given[name] for name in part.inputs if name in self._given}
        try:
            graph = part.graph({name: self._sizes[name] for name in needed}, values)
        except ModelError as error:
            asked = error.asked if isinstance(error, UnsupportedNode) else ()
            if asked and not _is_late_loop(part, error):
                return ListedStage(*about, waits_for=tuple(asked))
            return self._cut(part, error) or self._without_plan(part, about, error)
        self._sizes.update({name: dims for name, dims in graph.outputs.items() if name not in graph.cuts})
        return ListedStage(*about, check=check_model(graph, settings=self._settings))

    def _cut(self, part: Part, error: ModelError) -> tuple[Part, Part] | None:
        stop = stopped_at(error)
        if not stop or self._parts >= MOST_STAGES:
            return None
        return part.cut(stop, self._label)

    def _without_plan(
        self, part: Part, about: tuple[dict[str, int], tuple[str, ...]], error: ModelError
    ) -> ListedStage:
        node = part.only
        if node is not None and stopped_at(error):
            if node.op_type in COURSES:
                return ListedStage(*about, course=str(node.op_type))
            if draws(node):
                return ListedStage(*about, draws=str(node.op_type))
        return ListedStage(*about, error=str(error))

    def _label(self) -> str:
        self._parts += 1
        return f"stage {self._parts}:"


def _is_late_loop(part: Part, error: ModelError) -> bool:
    """Return whether a later stage ended at a loop: a session runs its passes one by one."""
    stop = stopped_at(error)
    node = part.node_of(stop) if part.label and stop else None
    return node is not None and node.op_type in COURSES and node.op_type != "If"


def _inputs(
    model: SessionModel,
    batch: int | None,
    shapes: Mapping[str, Sequence[int]],
    values: Mapping[str, ArrayLike],
) -> tuple[dict[str, NDArray[Any]], dict[str, tuple[int, ...]]]:
    """Return the values of the inputs that are given, and the shapes of all others."""
    given: dict[str, NDArray[Any]] = {}
    sizes: dict[str, tuple[int, ...]] = {}
    for declared in model.declared_inputs():
        if declared.name in values:
            given[declared.name] = known_input(declared, values[declared.name])
        else:
            sizes[declared.name] = open_input(declared, batch, shapes.get(declared.name))[0]
    return given, sizes
