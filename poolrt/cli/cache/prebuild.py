"""`poolrt cache prebuild`: compile the kernels of well-known networks into the file that travels in the package."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from poolrt.cachestore import CreationFailed
from poolrt.cachestore.prebuilt import PACKAGE_FILE
from poolrt.cli.cache.progress import Progress
from poolrt.cli.model_option import model_path, require_file
from poolrt.cli.report import JobFailed, Report, UsageError, bytes_text, seconds_text
from poolrt.settings import Settings

if TYPE_CHECKING:
    from poolrt.graph.builder import Graph

DESCRIPTION: Final = """\
Compile the kernels that well-known networks need into one file, for x86-64-v3 and x86-64-v4, both also with VNNI, the latter
with BF16 and AMX too.

The networks are the nine of poolrt.models, residual, mobile and integer ones, U-Net, perceptrons, and transformers of texts and
pictures, in usual sizes. A process whose sources, numba, llvmlite and numpy are the same uses the kernels of the file and
compiles nothing; all others compile, as without the file. What the former file has is kept, so repeating the command is fast.

The file is not signed: it is trusted as the package's code is. By default it is put into the package, where wheels of a
checkout take it along and every process finds it (the setting prebuilt).
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the command's options."""
    parser.description = DESCRIPTION
    parser.add_argument("models", nargs="*", type=model_path, metavar="MODEL.onnx", help="models of yours")
    parser.add_argument(
        "--output", type=Path, default=Path(PACKAGE_FILE), metavar="FILE", help="the file (default: the package's)"
    )
    parser.add_argument("--only", action="store_true", help="the kernels of the given models alone")


def prebuild(options: argparse.Namespace, settings: Settings, report: Report) -> int:
    """Make the file."""
    from poolrt.graph.errors import GraphError
    from poolrt.graph.onnx.importer import load_onnx
    from poolrt.prebuilt.collection import Collection, usual_targets
    from poolrt.prebuilt.making import make
    from poolrt.prebuilt.networks import graphs

    for path in options.models:
        require_file(path)
    if not options.output.parent.is_dir():
        raise UsageError(f"--output {options.output}: there is no folder {options.output.parent}")
    begin = time.monotonic()
    builders: list[tuple[str, Callable[[], Graph]]] = [(str(path), partial(load_onnx, path)) for path in options.models]
    kernels = Collection(usual_targets())
    try:
        with Progress("lowered networks:") as progress:
            builders += [] if options.only else graphs()
            for number, (_, build) in enumerate(builders, 1):
                kernels.add(build())
                progress.show(number, len(builders))
        with Progress("compiled") as progress:
            made = make(os.path.abspath(options.output), kernels, progress.show)
    except (GraphError, CreationFailed) as error:
        raise JobFailed(str(error)) from error
    except OSError as error:
        raise JobFailed(f"{options.output}: {error.strerror}") from error
    report.say(
        f"{made.kernels} kernels, {made.compiled} compiled, {bytes_text(made.bytes)}, written to {made.path} "
        f"in {seconds_text(time.monotonic() - begin)}"
    )
    report.result(made.as_dict())
    return 0
