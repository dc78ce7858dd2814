"""Errors of sessions: ONNX Runtime's names, in poolrt's tree."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from poolrt.graph.errors import GraphError, ModelError, UnsupportedNode

if TYPE_CHECKING:
    from collections.abc import Iterator


class InvalidArgument(GraphError):
    """An argument of a session or run is wrong: a name, data type, rank or size. The message has what is expected."""


class Fail(GraphError):
    """A run failed for inputs that have the declared types and ranks, or it was terminated."""


class NoSuchFile(ModelError):
    """The model's file does not exist."""


class InvalidProtobuf(ModelError, InvalidArgument):
    """The bytes of a model are no ONNX model."""


class InvalidGraph(ModelError):
    """A model is not valid ONNX, or cannot be computed for the sizes of a run."""


class NotImplemented(UnsupportedNode):
    """A model uses operators or options that poolrt does not have; see `poolrt.UnsupportedNode`."""


def not_implemented(error: UnsupportedNode) -> UnsupportedNode:
    """Return an error of an import as that of a session."""
    found = NotImplemented(error.node, error.operator, error.opset, error.reason, error.uses)
    found.asked, found.is_computed, found.stopped_at = error.asked, error.is_computed, error.stopped_at
    return found


@contextmanager
def as_session_errors() -> Iterator[None]:
    """Raise the errors of an import as those of sessions, which are also of the class that they had."""
    try:
        yield
    except (InvalidArgument, Fail, NoSuchFile, InvalidGraph, NotImplemented):
        raise
    except UnsupportedNode as error:
        raise not_implemented(error) from error
    except ModelError as error:
        raise InvalidGraph(str(error)) from error
