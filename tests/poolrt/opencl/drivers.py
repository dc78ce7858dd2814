"""The OpenCL drivers that tests run on: PoCL, which comes with pyopencl, and Intel's for processors where it is installed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import pytest

PLATFORMS: Final = ("Portable", "Intel")
#: What programs of tests read to choose a platform by a part of its name.
VARIABLE: Final = "POOLRT_TEST_PLATFORM"
_INTEL: Final = Path(sys.prefix, "lib", "libintelocl.so")


def choose_platform(platform: str, patch: pytest.MonkeyPatch) -> None:
    """Let child processes choose a platform; skip the test if its driver is not installed."""
    if platform == "Intel":
        if not _INTEL.exists():
            pytest.skip("Intel's driver is not installed: install poolrt[opencl-intel]")
        patch.setenv("OCL_ICD_VENDORS", str(_INTEL))
    patch.setenv(VARIABLE, platform)
