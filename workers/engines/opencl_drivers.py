"""The drivers that the OpenCL loader finds: those of the system, and Intel's CPU driver if its wheels are installed.

The loader finds the PoCL of pyopencl's wheel by itself. Intel's wheels register their driver for the whole system or not
at all. This module therefore names a virtual environment's driver beside those of the system, unless the user has chosen.
"""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping
from pathlib import Path
from typing import Final

#: The loader's variables: if one is set, the user has chosen the drivers.
CHOICES: Final = ("OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH", "OCL_ICD_FILENAMES")
SYSTEM: Final = Path("/etc/OpenCL/vendors")
_INTEL: Final = "lib/libintelocl.so"


def announce_drivers(
    folder: Path,
    prefix: Path | None = None,
    system: Path = SYSTEM,
    environ: MutableMapping[str, str] | None = None,
) -> bool:
    """Name the drivers of wheels under ``prefix`` to the loader, through files in ``folder``. Return whether any are.

    Call it before the loader is first used. ``prefix`` is by default this interpreter's environment.
    """
    variables = os.environ if environ is None else environ
    library = (prefix or Path(sys.prefix)) / _INTEL
    if any(name in variables for name in CHOICES) or not library.exists():
        return False
    folder.mkdir()
    for file in system.glob("*.icd"):
        (folder / file.name).write_bytes(file.read_bytes())
    (folder / "wheel-intel-cpu.icd").write_text(f"{library}\n", encoding="utf-8")
    variables["OCL_ICD_VENDORS"] = str(folder)
    return True
