"""The connection to a coordinator: its start."""

from __future__ import annotations

import os

import pytest

from poolrt.connection.client import Client
from poolrt.errors import CoordinatorLost
from poolrt.workers.ipc.channel import Channel, pair
from poolrt.workers.ipc.protocol import VERSION, Kind


def test_a_start_that_nobody_read_in_time_counts() -> None:
    """A program may compute for longer than the coordinator's start may take, and use its pool after that."""
    # Given: a coordinator that has answered, and a client whose deadline is over before it reads
    here, there = pair()
    coordinator = Channel(there, accepts_fds=True)
    memory = os.memfd_create("arena")
    client = Client(Channel(here, accepts_fds=True), [], start_timeout_s=0.0, silence_s=60.0)
    try:
        coordinator.send([Kind.WELCOME, VERSION, 4096, {"workers": 1}], (memory,))
        # When: the client asks for the answer
        arena, nbytes, facts = client.welcome()
        # Then: it has it
        os.close(arena)
        assert (nbytes, facts) == (4096, {"workers": 1})
    finally:
        client.close()
        coordinator.close()
        os.close(memory)


def test_a_coordinator_that_is_late_is_lost() -> None:
    """The deadline holds for a coordinator that has not answered."""
    # Given: a coordinator that answers nothing
    here, there = pair()
    coordinator = Channel(there)
    client = Client(Channel(here, accepts_fds=True), [], start_timeout_s=0.0, silence_s=60.0)
    try:
        # When, Then
        with pytest.raises(CoordinatorLost, match="did not start in time"):
            client.welcome()
    finally:
        client.close()
        coordinator.close()
