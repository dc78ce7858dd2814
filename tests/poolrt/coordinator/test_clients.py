"""The coordinator's state machine and single clients: their limits, and what belongs to one of them."""

from __future__ import annotations

import itertools

from poolrt.coordinator.functions import FUNCTIONS_LIMIT
from poolrt.coordinator.instructions import (
    CollectStatistics,
    HangUp,
    Instruction,
    Kill,
    Lower,
    LoweredGraph,
    Send,
    Spawn,
)
from poolrt.coordinator.loads import CONSTANTS_LIMIT
from poolrt.coordinator.state import CLIENT_LIMIT, State
from poolrt.coordinator.watchdog import Limits
from poolrt.workers.ipc.protocol import Kind
from poolrt.workers.plans.execution_plan import PlanConstant

_ARENA = 400_000
_RETRIES = 2
_LIMITS = Limits(start_s=20.0, run_s=15.0, creation_s=25.0)


def test_a_client_has_a_bounded_number_of_unanswered_questions() -> None:
    state = State(itertools.count(1), _ARENA, 1, 1, _RETRIES, 8, functions=True, limits=_LIMITS)
    state.on_client_connected(100)
    for request in range(CLIENT_LIMIT):
        (asked,) = state.on_client_message(100, Kind.STATISTICS, [Kind.STATISTICS, request])
        assert isinstance(asked, CollectStatistics)
    (last,) = state.on_client_message(100, Kind.STATISTICS, [Kind.STATISTICS, CLIENT_LIMIT])
    assert isinstance(last, HangUp)
    # An answer makes room
    state.on_statistics(100, 0, {})
    assert isinstance(state.on_client_message(100, Kind.STATISTICS, [Kind.STATISTICS, 0])[0], CollectStatistics)


def test_text_of_a_function_goes_to_its_client_and_any_other_text_ends_the_worker() -> None:
    state = State(itertools.count(1), _ARENA, 1, 1, _RETRIES, 8, functions=True, limits=_LIMITS)
    (spawn,) = state.start()
    assert isinstance(spawn, Spawn)
    state.on_process_message(spawn.peer, Kind.READY, [Kind.READY, 1, 1])
    state.on_client_connected(100)
    apply, _begun = state.on_client_message(100, Kind.CALL, [Kind.CALL, 5, 0, 0, b""])
    assert isinstance(apply, Send)
    token = apply.message[1]

    def printed(token: int) -> list[Instruction]:
        return state.on_process_message(spawn.peer, Kind.PRINTED, [Kind.PRINTED, token, 1, 0, "text"])

    assert printed(token) == [Send(100, [Kind.TEXT, 5, 1, 0, "text"])]
    assert isinstance(printed(token + 1)[0], Kill)
    state.on_client_disconnected(100)
    assert printed(token) == []


def test_loads_of_one_client_that_are_under_way_have_a_bounded_number_of_constants_unless_it_is_one() -> None:
    state = State(itertools.count(1), 1 << 30, 1, 1, _RETRIES, 8, functions=True, limits=_LIMITS)
    state.on_client_connected(100)
    state.on_client_connected(200)

    def failed(client: int, request: int, constants: int) -> bool:
        (lower,) = state.on_client_message(client, Kind.LOAD, [Kind.LOAD, request, "g", ["cpu"], 0, b""])
        assert isinstance(lower, Lower)
        graph = LoweredGraph(b"", 0, (), (PlanConstant(0, 4, 4, None),) * constants, [], [])
        sent = [each.message for each in state.on_lowered(lower.load, graph) if isinstance(each, Send)]
        return any(message[0] == Kind.FAILED for message in sent)

    assert not failed(100, 1, CONSTANTS_LIMIT + 1)
    assert failed(100, 2, 1)
    assert not failed(200, 1, CONSTANTS_LIMIT)


def test_functions_of_a_client_are_bounded_and_without_the_setting_none_is_kept() -> None:
    for functions in (True, False):
        state = State(itertools.count(1), _ARENA, 1, 1, _RETRIES, 8, functions=functions, limits=_LIMITS)
        state.on_client_connected(100)
        for number in range(1, FUNCTIONS_LIMIT + 1):
            assert state.on_client_message(100, Kind.FUNCTION, [Kind.FUNCTION, number, b"function"]) == []
        refused = state.on_client_message(100, Kind.FUNCTION, [Kind.FUNCTION, FUNCTIONS_LIMIT + 1, b"function"])
        assert [type(each) for each in refused] == ([HangUp] if functions else [])
        answer = state.on_client_message(100, Kind.CALL, [Kind.CALL, 1, 1, 0, b"arguments"])
        assert (answer == []) == functions
