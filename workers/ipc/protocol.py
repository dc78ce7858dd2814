"""The messages that processes exchange: each is an array of its kind and that kind's fields, checked on arrival.

A message is data, and `check_message` validates it before any other code reads it. Offsets count bytes from the start
of the arena. A *token* is the coordinator's number for a piece of work, a *request* is a client's. A *payload* is bytes that
the coordinator forwards, or decodes beside its loop. It is the last field, and the only one that may be long.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final, Self

from .bounded_decoding import Payload
from .channel import FRAME, MAX_MESSAGE, MalformedMessage, Message

#: Changes with any change of a message or a ring; a client and a coordinator of different versions refuse each other.
VERSION: Final = 18
#: Longest message of a client, in bytes, with a graph, with a function, and of any other kind.
GRAPH_BYTES: Final = 32 * 1024 * 1024
CALL_BYTES: Final = MAX_MESSAGE // 2
CONTROL_BYTES: Final = FRAME
#: Numbers in one list of a message, such as offsets to release, which a coordinator handles in about 1 ms; a client sends
#: more in several messages. A run has two such lists.
NUMBERS_LIMIT: Final = 1024
#: The offset of a constant that is in a file of the node, not in the arena.
IN_FILE: Final = 2**63 - 1
#: The priorities of runs and calls; those of the highest go first.
PRIORITIES: Final = range(-8, 8)
#: Added to the number of a function in a call ring if the arguments are plain values, which need no table of globals.
PLAIN: Final = 2**62
#: Added to it if they are positional scalars in the format of `marshal`, which takes a fourth of the time of pickles.
SCALARS: Final = 2**61
#: Added to it instead if some of them are arrays of the arena, which are named in place (`placed_arrays`). Functions have
#: smaller numbers.
PLACED: Final = 2**60


def _is(kind: type) -> Callable[[Any], bool]:
    return lambda value: type(value) is kind


def _list_of(accepts: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: type(value) is list and all(map(accepts, value))


def _count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


#: What a field is called -> whether a value is one.
_CHECKS: Final[dict[str, Callable[[Any], bool]]] = {
    "integer": lambda value: type(value) is int and -(2**63) <= value < 2**63,
    "count": _count,
    "priority": lambda value: type(value) is int and value in PRIORITIES,
    "number": lambda value: type(value) is float or type(value) is int,
    "text": _is(str),
    "bytes": _is(bytes),
    "payload": lambda value: type(value) is bytes or type(value) is Payload,
    "flag": _is(bool),
    "list": _is(list),
    "counts": lambda value: type(value) is list and all(type(item) is int and 0 <= item < 2**63 for item in value),
    "texts": _list_of(_is(str)),
    "triples": _list_of(lambda item: type(item) is list and len(item) == 3 and all(map(_count, item))),
    "blobs": _list_of(_is(bytes)),
    "table": lambda value: type(value) is dict and all(type(key) is str for key in value),
    "anything": lambda value: True,
}


class Kind(IntEnum):
    """What a message is: its number, what each of its fields holds, and its longest size in bytes if a client sends it."""

    #: Name of each field's check, and the check.
    fields: tuple[tuple[str, Callable[[Any], bool]], ...]
    limit: int

    def __new__(cls, number: int, fields: str = "", limit: int = CONTROL_BYTES) -> Self:
        kind = int.__new__(cls, number)
        kind._value_ = number
        kind.fields = tuple((name, _CHECKS[name]) for name in fields.split())
        kind.limit = limit
        return kind

    # client -> coordinator
    CONFIGURE = 1, "table"  # settings; the first message to a coordinator that a client has started
    HELLO = 2, "integer"  # version; the first message of every client
    LOAD = (
        3,
        "count text texts priority payload",
        GRAPH_BYTES,
    )  # request, name, engines, priority of runs, graph (msgpack)
    WRITTEN = 4, "count counts"  # request, numbers of the constants that are in their slots
    RUN = 5, "count count counts counts"  # request, model, input offsets, offsets released
    CALL = (
        6,
        "count count priority payload",
        CALL_BYTES,
    )  # request, function (0: it is in the payload), priority, arguments (pickle)
    ALLOCATE = 7, "count counts"  # request, sizes in bytes
    RELEASE = 8, "counts"  # offsets, one for each reference given back
    UNLOAD = 9, "count"  # model
    STATISTICS = 10, "count"  # request
    STOP = 11, ""  # nothing; end the coordinator
    CANCEL = 12, "count"  # request; of a load, which then fails unless it is done already
    EXPLAIN = 13, "count count"  # request, model
    PING = 14, ""  # nothing; answered by PONG at once
    FUNCTION = 15, "count payload", CALL_BYTES  # function, folders and the function (pickle)
    DISCARD = 16, "count"  # function; no further call names it
    WITHDRAW = 17, "count count"  # request, request of a run or call to withdraw unless it has begun
    INITIALIZER = (
        18,
        "count payload",
        CALL_BYTES,
    )  # function to call in a worker before others of this client, arguments
    RERUN = 19, "count count counts counts count"  # as RUN, and the lost ring whose worker had begun it

    GIVE_UP = (
        39,
        "count count count",
    )  # request of a run or 0, ring or 0, sequence of its entry: its caller waits no longer

    HELD_UP = 130, "count"  # ring whose worker makes no progress: its runs are sent as messages, for other workers

    # coordinator -> client
    WELCOME = 20, "integer count table"  # version, arena bytes, facts; comes with the arena's file descriptor
    STAGE = 21, "count triples"  # request, [number of a constant, its value in the graph, offset to write it to]...
    PROGRESS = 22, "count count count texts"  # request, primitives in all, ready, names of those being created
    LOADED = 23, "count count list list table"  # request, model, inputs, outputs, report
    DONE = 24, "count counts"  # request, output offsets
    RETURNED = 25, "count payload"  # request, value (pickle)
    RAISED = 26, "count text payload"  # request, the exception's text, the exception (pickle)
    ALLOCATED = 27, "count counts"  # request, offsets
    STATUS = 28, "count table"  # request, facts
    FAILED = 29, "count table"  # request, error
    EXPLAINED = 30, "count bytes list"  # request, plan (msgpack), primitive descriptors
    PONG = 31, ""  # nothing
    TEXT = (
        32,
        "count count count text",
    )  # request, 1 for standard output or 2 for error, characters left out before it, text
    WITHDRAWN = 33, "count flag"  # request, whether the run or call will never begin
    BEGUN = 34, "count"  # request of a run or call that a worker has executed for a while
    RING = 35, "count"  # ring to a worker; comes with the descriptors of its memory and its bell
    RING_MODEL = 36, "count count"  # ring, model that may be run on it
    RING_LOST = 37, "count"  # ring whose worker has exited
    RING_FAILED = 38, "count count table"  # ring, sequence of the entry, error
    RING_FIRST = 131, "count"  # ring with which the client's runs begin from now on

    # coordinator -> worker
    MODEL = 40, "count bytes blobs counts"  # model, plan (msgpack), entries, offsets of the constants or `IN_FILE`
    DROP = 41, "count"  # model
    EXECUTE = 42, "count count counts counts"  # token, model, input offsets, output offsets
    REORDER = (
        43,
        "count count count count count",
    )  # token, model, number of the constant, source offset, destination offset
    APPLY = 44, "count count count payload"  # token, client, function (0: it is in the payload), arguments (pickle)
    PROBE = 45, "count text"  # token, engine
    FUNCTION_BODY = 46, "count payload"  # function, folders and the function (pickle)
    FORGET = 47, "count"  # function
    PREPARE = 48, "count count payload"  # client, function to call once, its arguments (pickle)
    LEAVE = 49, "count"  # client that has disconnected
    KEEP = 50, "count count count count text"  # token, model, number of the constant, source offset, name of its file
    FILES = 51, "count count list"  # model, process that has its constants open, [number, descriptor, name]...
    ATTACH = 52, "count"  # ring; comes with the descriptors of its memory and its bell
    ALLOW = 53, "count count counts counts"  # ring, model to accept on it, sizes of inputs and outputs in bytes
    DETACH = 54, "count"  # ring; answered by DETACHED
    LOOK = 58, ""  # nothing; a worker that sleeps looks at its rings
    RING_ENDS = 57, "bytes"  # entry of the compiled ends of rings; to clients too

    # worker -> coordinator
    READY = 60, "count count"  # process id, threads of the process
    FINISHED = 61, "count flag"  # token, whether numba is imported
    ANSWER = 62, "count flag anything"  # token, whether numba is imported, value
    THREW = 63, "count text payload"  # token, the exception's text, the exception (pickle)
    BROKEN = 64, "count text text text"  # token, type, message, log
    KERNEL_RAISED = 67, "count text text text text"  # as BROKEN, and what the kernel of a user raised (`Raised.text`)
    PRINTED = 65, "count count count text"  # token, the rest as in TEXT
    UNFIT = 66, "count text text text"  # token, error of a call whose function was not called, message, log
    DETACHED = 68, "count"  # ring that is not served any more
    ALLOWED = 71, "count count"  # ring, model that is accepted on it from now on
    RING_BROKEN = 69, "count text"  # ring on which its client broke the rules, which
    RING_RAISED = 70, "count count text text text text"  # ring, sequence of the entry, the rest as in KERNEL_RAISED

    # rings of calls: client -> coordinator
    CALLS = 110, "count"  # function to be called on rings
    # coordinator -> client
    CALL_RING = 111, "count"  # ring to a worker; comes with the descriptors of its memory and its bell
    CALLABLE = 112, "count count"  # ring, function that may be called on it
    CALLS_LOST = 113, "count table"  # ring whose worker has exited, error of the call that it had begun
    CALL_RING_FIRST = 132, "count"  # ring with which the client's calls begin from now on
    # coordinator -> worker
    GATE = 114, ""  # nothing; comes with the descriptor of its memory, once, before the first ring
    ATTACH_CALLS = 115, "count count"  # ring, client; comes with the descriptors of its memory and its bell
    ADMIT = 116, "count count count"  # ring, the client's number of a function, function to call for it
    DETACH_CALLS = 117, "count"  # ring; answered by DETACHED_CALLS
    GO = 118, ""  # nothing; the worker calls at least one function, unless there are none
    # worker -> coordinator
    ADMITTED = 119, "count count"  # ring, the client's number of a function that is accepted from now on
    DETACHED_CALLS = 120, "count"  # ring that is not served any more
    CALLS_BROKEN = 121, "count text"  # ring on which its client broke the rules, which
    FREE = 122, ""  # nothing; no function is called until the gate is opened
    CALL_PRINTED = 123, "count count count count text"  # ring, request, the rest as in TEXT
    CALL_RETURNED = 124, "count count payload"  # ring, request, value (pickle)
    CALL_THREW = 125, "count count text payload"  # ring, request, the exception's text, the exception (pickle)
    CALL_UNFIT = 126, "count count text text text"  # ring, request, the rest as in UNFIT

    # long results of functions: worker -> coordinator
    ROOM = 127, "count count counts"  # ring or 0, request or token, sizes in bytes of slots for the result
    # coordinator -> worker
    ROOM_TAKEN = 128, "counts"  # offsets, none if there is no room
    # coordinator -> client
    RESULT_ROOM = 129, "count counts"  # request, offsets of the slots, which are the client's

    # coordinator -> creator, and back
    CREATE = 80, "count list"  # token, primitive descriptor
    CREATED = 81, "count bytes text number"  # token, entry, source, seconds

    # coordinator -> fork server, and back
    FORK = 100, "count text table"  # ticket, role, options; comes with the file descriptors of the child
    FORKED = 101, "count count"  # ticket, process id; comes with a pidfd
    FORK_FAILED = 102, "count text"  # ticket, why no child could be made
    STOPPED = 103, ""  # nothing; a signal has stopped a child


_KINDS: Final[dict[int, Kind]] = {int(kind): kind for kind in Kind}


def limit_of(number: int) -> int:
    """Return the longest message of a kind, in bytes, that a coordinator accepts from a client."""
    kind = _KINDS.get(number)
    return CONTROL_BYTES if kind is None else kind.limit


def check_message(message: Message) -> Kind:
    """Return the kind of a message whose fields are as that kind's should be. Raises MalformedMessage otherwise."""
    number: Any = message[0]
    kind = _KINDS.get(number) if type(number) is int else None
    if kind is None:
        raise MalformedMessage(f"unknown kind of message {number!r}")
    fields = kind.fields
    if len(message) != len(fields) + 1:
        raise MalformedMessage(f"{kind.name} has {len(fields)} fields, got {len(message) - 1}")
    position = 1
    for name, accepts in fields:
        if not accepts(message[position]):
            raise MalformedMessage(f"{kind.name}: field {position} is not {name}")
        position += 1
    return kind
