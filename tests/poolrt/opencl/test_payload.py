"""Payloads of programs: what was packed, or a refusal."""

from __future__ import annotations

import zlib

import msgpack
import pytest

from poolrt.opencl.payload import MalformedProgram, ProgramBinary, pack_program, parse_program


def test_a_program_is_what_it_was() -> None:
    program = ProgramBinary(b"\x7fELF" * 1000, "a warning: ü", "\n// 1\n", ("f/64-1-1",))
    assert parse_program(pack_program(program)) == program


def test_a_log_is_bounded_and_can_always_be_packed() -> None:
    log = parse_program(pack_program(ProgramBinary(b"b", "\udcff" + "x" * 1_000_000))).log
    assert len(log) == 1 << 16


@pytest.mark.parametrize(
    "payload",
    [
        *(b"", b"\x00", msgpack.packb({"a": 1}), pack_program(ProgramBinary(b"b", ""))[:-2]),
        *(
            msgpack.packb([1, binary, "", "", []])
            for binary in (zlib.compress(b""), b"no zlib", zlib.compress(b"b")[:-1], 5)
        ),
        *(
            msgpack.packb([1, zlib.compress(b"b"), log, "", launches])
            for log, launches in ((1, []), ("", [1]), ("", ""))
        ),
        msgpack.packb([2, zlib.compress(b"b"), "", "", []]),
    ],
)
def test_another_payload_is_malformed(payload: bytes) -> None:
    with pytest.raises(MalformedProgram):
        parse_program(payload)
