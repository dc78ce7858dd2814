"""Messages are checked on arrival: each kind's fields, and nothing that is not a kind."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolrt.workers.ipc.bounded_decoding import Payload
from poolrt.workers.ipc.channel import MalformedMessage
from poolrt.workers.ipc.protocol import Kind, check_message


@pytest.mark.parametrize(
    "message",
    [
        [5, 1, 2, [0, 128], []],
        [3, 1, "g", ["cpu"], -8, b"graph"],
        [6, 1, 2, 7, Payload([memoryview(b"call")], 4)],
        [21, 1, [[0, 3, 4096]]],
        [62, 7, True, {"any": ["thing"]}],
        [81, 1, b"entry", "created", 0.5],
        [11],
    ],
)
def test_a_well_formed_message_is_of_its_kind(message: list[Any]) -> None:
    assert check_message(message) is Kind(message[0])


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        ([0], "unknown kind"),
        (["RUN", 1], "unknown kind"),
        ([True, 1], "unknown kind"),
        ([5, 1, 2, [0]], "RUN has 4 fields, got 3"),
        ([5, 1, 2, [0], [], 9], "RUN has 4 fields, got 5"),
        ([5, -1, 2, [0], []], "RUN: field 1"),
        ([5, 1, True, [0], []], "RUN: field 2"),
        ([5, 1, 2, [0, "x"], []], "RUN: field 3"),
        ([5, 1, 2, [2**63], []], "RUN: field 3"),
        ([5, 1, 2, [0], None], "RUN: field 4"),
        ([3, 1, [1], [], 0, b""], "LOAD: field 2"),
        ([3, 1, "g", ["cpu", 5], 0, b""], "LOAD: field 3"),
        ([3, 1, "g", [], 8, b""], "LOAD: field 4"),
        ([3, 1, "g", [], -9, b""], "LOAD: field 4"),
        ([3, 1, "g", [], True, b""], "LOAD: field 4"),
        ([3, 1, "g", [], 0, {"nodes": []}], "LOAD: field 5"),
        ([21, 1, [[0, 1]]], "STAGE: field 2"),
        ([6, 1, 2, 9, b""], "CALL: field 3"),
        ([6, 1, 2, 0, "text"], "CALL: field 4"),
    ],
)
def test_a_message_that_is_not_as_it_should_be_is_refused_with_the_reason(message: list[Any], complaint: str) -> None:
    with pytest.raises(MalformedMessage, match=complaint):
        check_message(message)


@given(st.lists(st.integers() | st.text() | st.binary() | st.lists(st.integers()) | st.none(), min_size=1))
def test_any_message_is_a_kind_or_malformed(message: list[Any]) -> None:
    try:
        assert isinstance(check_message(message), Kind)
    except MalformedMessage:
        pass
