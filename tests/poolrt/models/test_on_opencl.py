"""Whole networks on OpenCL against the outputs of ONNX Runtime."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from poolrt.models import NAMES

from ...workers.own_process import Server


@pytest.fixture(scope="module")
def networks(device: str) -> Iterator[Server]:
    server = Server("tests.poolrt.models.opencl_networks")
    yield server
    server.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_network_gives_the_expected_output(networks: Server, name: str) -> None:
    error, largest = networks.ask(name)
    assert error <= 1e-5 * largest
