"""The messages that processes exchange: each is an array of its kind and that kind's fields, checked on arrival.

A message is data and is validated before anyone acts on it; what a kind's fields mean stands beside it below. Offsets
count bytes from the start of the arena. A *token* is a number by which the coordinator knows a piece of work again, a
*request* one by which a client does.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final

from .channel import MalformedMessage, Message

#: Changes with any change of a message; a client and a coordinator of different versions refuse each other.
VERSION: Final = 2


class Kind(IntEnum):
    """What a message is."""

    # client -> coordinator
    CONFIGURE = 1  # settings; the first message to a coordinator that a client has started
    HELLO = 2  # version; the first message of every client
    LOAD = 3  # request, graph
    WRITTEN = 4  # request, numbers of the constants that are in their slots
    RUN = 5  # request, model, input offsets, offsets released
    CALL = 6  # request, function and arguments (dill)
    ALLOCATE = 7  # request, sizes in bytes
    RELEASE = 8  # offsets, one for each reference given back
    UNLOAD = 9  # model
    STATISTICS = 10  # request
    STOP = 11  # nothing; end the coordinator
    CANCEL = 12  # request; of a load, which then fails unless it is done already
    EXPLAIN = 13  # request, model

    # coordinator -> client
    WELCOME = 20  # version, arena bytes, facts; comes with the arena's file descriptor
    STAGE = 21  # request, [number of a constant, its value in the graph, offset to write it to]...
    PROGRESS = 22  # request, primitives in all, ready, names of those being created
    LOADED = 23  # request, model, inputs, outputs, report
    DONE = 24  # request, output offsets
    RETURNED = 25  # request, value (dill)
    RAISED = 26  # request, exception (dill), its text
    ALLOCATED = 27  # request, offsets
    STATUS = 28  # request, facts
    FAILED = 29  # request, error
    EXPLAINED = 30  # request, plan, primitive descriptors

    # coordinator -> worker
    MODEL = 40  # model, plan, entries, offsets of the constants
    DROP = 41  # model
    EXECUTE = 42  # token, model, input offsets, output offsets
    REORDER = 43  # token, model, number of the constant, source offset, destination offset
    APPLY = 44  # token, function and arguments (dill)
    PROBE = 45  # token, engine

    # worker -> coordinator
    READY = 60  # process id, threads of the process
    FINISHED = 61  # token, whether numba is imported
    ANSWER = 62  # token, value, whether numba is imported
    THREW = 63  # token, exception (dill), its text
    BROKEN = 64  # token, type, message, log

    # coordinator -> creator, and back
    CREATE = 80  # token, primitive descriptor
    CREATED = 81  # token, entry, source, seconds

    # coordinator -> fork server, and back
    FORK = 100  # ticket, role, options; comes with the file descriptors of the child
    FORKED = 101  # ticket, process id; comes with a pidfd
    FORK_FAILED = 102  # ticket, why no child could be made


def _integer(value: object) -> bool:
    return type(value) is int and -(2**63) <= value < 2**63


def _count(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _number(value: object) -> bool:
    return type(value) is float or type(value) is int


def _text(value: object) -> bool:
    return type(value) is str


def _bytes(value: object) -> bool:
    return type(value) is bytes


def _flag(value: object) -> bool:
    return type(value) is bool


def _list(value: object) -> bool:
    return type(value) is list


def _counts(value: object) -> bool:
    return type(value) is list and all(type(item) is int and 0 <= item < 2**63 for item in value)


def _texts(value: object) -> bool:
    return type(value) is list and all(type(item) is str for item in value)


def _triples(value: object) -> bool:
    return type(value) is list and all(_counts(item) and len(item) == 3 for item in value)


def _blobs(value: object) -> bool:
    return type(value) is list and all(type(item) is bytes for item in value)


def _table(value: object) -> bool:
    return type(value) is dict and all(type(key) is str for key in value)


def _anything(value: object) -> bool:
    return True


_FIELDS: Final[dict[Kind, tuple[Callable[[object], bool], ...]]] = {
    Kind.CONFIGURE: (_table,),
    Kind.HELLO: (_integer,),
    Kind.LOAD: (_count, _table),
    Kind.WRITTEN: (_count, _counts),
    Kind.RUN: (_count, _count, _counts, _counts),
    Kind.CALL: (_count, _bytes),
    Kind.ALLOCATE: (_count, _counts),
    Kind.RELEASE: (_counts,),
    Kind.UNLOAD: (_count,),
    Kind.STATISTICS: (_count,),
    Kind.STOP: (),
    Kind.CANCEL: (_count,),
    Kind.EXPLAIN: (_count, _count),
    Kind.WELCOME: (_integer, _count, _table),
    Kind.STAGE: (_count, _triples),
    Kind.PROGRESS: (_count, _count, _count, _texts),
    Kind.LOADED: (_count, _count, _list, _list, _table),
    Kind.DONE: (_count, _counts),
    Kind.RETURNED: (_count, _bytes),
    Kind.RAISED: (_count, _bytes, _text),
    Kind.ALLOCATED: (_count, _counts),
    Kind.STATUS: (_count, _table),
    Kind.FAILED: (_count, _table),
    Kind.EXPLAINED: (_count, _list, _list),
    Kind.MODEL: (_count, _list, _blobs, _counts),
    Kind.DROP: (_count,),
    Kind.EXECUTE: (_count, _count, _counts, _counts),
    Kind.REORDER: (_count, _count, _count, _count, _count),
    Kind.APPLY: (_count, _bytes),
    Kind.PROBE: (_count, _text),
    Kind.READY: (_count, _count),
    Kind.FINISHED: (_count, _flag),
    Kind.ANSWER: (_count, _anything, _flag),
    Kind.THREW: (_count, _bytes, _text),
    Kind.BROKEN: (_count, _text, _text, _text),
    Kind.CREATE: (_count, _list),
    Kind.CREATED: (_count, _bytes, _text, _number),
    Kind.FORK: (_count, _text, _table),
    Kind.FORKED: (_count, _count),
    Kind.FORK_FAILED: (_count, _text),
}
_KINDS: Final[dict[int, Kind]] = {int(kind): kind for kind in Kind}


def checked(message: Message) -> Kind:
    """Return the kind of a message whose fields are as that kind's should be. Raises MalformedMessage otherwise."""
    number: Any = message[0]
    kind = _KINDS.get(number) if type(number) is int else None
    if kind is None:
        raise MalformedMessage(f"unknown kind of message {number!r}")
    fields = _FIELDS[kind]
    if len(message) != len(fields) + 1:
        raise MalformedMessage(f"{kind.name} has {len(fields)} fields, got {len(message) - 1}")
    position = 1
    for accepts in fields:
        if not accepts(message[position]):
            raise MalformedMessage(f"{kind.name}: field {position} is not {accepts.__name__.strip('_')}")
        position += 1
    return kind
