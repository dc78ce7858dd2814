"""Map the folders of the three floors to one package, and refuse to build it if a file is missing.

In a checkout, `poolrt/workers` and `poolrt/cachestore` are symbolic links. Archives and file systems without links have a
file, a copy or nothing in their places, so the build finds no package through them. Everything else is in pyproject.toml.
"""

import os
import shutil
import sys

from setuptools import setup
from setuptools.command.build_py import build_py

if sys.version_info < (3, 11):  # noqa: UP036 - older ones run this file before they read `requires-python`
    sys.exit(
        f"poolrt needs Python 3.11 or newer; this is {'.'.join(map(str, sys.version_info[:3]))}: use another interpreter"
    )

ROOT = os.path.dirname(os.path.abspath(__file__))
#: Import name -> folder.
FLOORS = {"poolrt": "poolrt", "poolrt.workers": "workers", "poolrt.cachestore": "cachestore"}
#: Lists every file of the floors. An archive of which a part is missing has no other sign of that.
LIST = "MANIFEST.files"


def missing_files():
    """Return the listed files that are not there, sorted."""
    try:
        with open(os.path.join(ROOT, LIST), encoding="utf-8") as file:
            listed = file.read().split()
    except FileNotFoundError:
        return [LIST]
    # git lists its links as files.
    links = {f"poolrt/{folder}" for folder in FLOORS.values()}
    return sorted(path for path in {*listed} - links if not os.path.isfile(os.path.join(ROOT, path)))


def packages():
    """Yield the import name of each folder of the floors that has an `__init__.py`."""
    for floor, folder in FLOORS.items():
        for place, folders, files in os.walk(os.path.join(ROOT, folder)):
            inner = os.path.relpath(place, os.path.join(ROOT, folder))
            if (floor, inner) == ("poolrt", "."):
                # Neither links nor what an archive has in their places.
                folders[:] = [name for name in folders if name not in FLOORS.values()]
            if "__init__.py" in files:
                yield floor if inner == "." else f"{floor}.{inner.replace(os.sep, '.')}"


class BuildModules(build_py):
    """Copies the modules into an empty folder: an earlier build may have left modules that exist no more."""

    def run(self):
        if not self.editable_mode:
            shutil.rmtree(os.path.join(self.build_lib, "poolrt"), ignore_errors=True)
        super().run()


if missing := missing_files():
    more = f"\n... and {len(missing) - 20} more" if len(missing) > 20 else ""
    sys.exit(
        "poolrt cannot be built, because these files are missing; get its sources again:\n"
        + "\n".join(missing[:20])
        + more
    )

setup(
    packages=sorted(packages()),
    package_dir=FLOORS,
    cmdclass={"build_py": BuildModules},
    # poolrt has no extension modules, but the kernels that it creates are native objects for Linux on x86-64.
    options={"bdist_wheel": {"plat_name": "linux_x86_64"}},
)
