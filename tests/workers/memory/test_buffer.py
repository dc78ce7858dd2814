"""Memory for workspaces and constants: which of it asks for huge pages."""

from __future__ import annotations

from pathlib import Path

import pytest

from poolrt.workers.memory.buffer import Buffer


def flags_of(address: int) -> list[str]:
    """Return the kernel's flags of the mapping with an address."""
    is_inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        name, _, rest = line.partition(" ")
        if "-" in name and not name.endswith(":"):
            begin, end = (int(number, 16) for number in name.split("-"))
            is_inside = begin <= address < end
        elif is_inside and name == "VmFlags:":
            return rest.split()
    raise AssertionError(f"no mapping has the address {address:#x}")


@pytest.mark.skipif(not Path("/sys/kernel/mm/transparent_hugepage").exists(), reason="the kernel has no huge pages")
def test_a_buffer_of_a_huge_page_and_more_asks_for_huge_pages() -> None:
    for nbytes, asks in ((1 << 20, False), (2 << 20, True), (5 << 20, True)):
        buffer = Buffer(nbytes)
        assert ("hg" in flags_of(buffer.address)) == asks
