"""Export well-known networks with PyTorch: ``python benchmarks/exported/export.py FOLDER [--full] [--only NAME,...]``.

A development tool. It needs an environment of its own, without poolrt: ``pip install torch torchvision transformers onnx
onnxscript``. Weights are random and seeded. Each network is exported by the classic and by the dynamo exporter, with fixed
and with dynamic sizes; ``compare.py`` in this folder imports the files with poolrt and compares results and times.

``NAME.EXPORTER.SIZES.onnx`` has beside it ``NAME.SIZES.npz``, the inputs and PyTorch's own results (``in:NAME``,
``out:INDEX``). The inputs of dynamic sizes are of other sizes than those that the exporter saw.
"""

from __future__ import annotations

import argparse
import traceback
import warnings
from pathlib import Path
from typing import Any

import networks
import numpy as np
import torch


def disturb(module: torch.nn.Module) -> None:
    """Add random numbers to all weights and statistics that are one number: zeros would hide what they are multiplied with."""
    with torch.no_grad():
        for each in (*module.parameters(), *module.buffers()):
            if each.is_floating_point() and each.numel() > 1 and bool((each == each.flatten()[0]).all()):
                each.add_(torch.rand_like(each) * 0.2)


def results_of(module: torch.nn.Module, feeds: dict[str, torch.Tensor]) -> list[np.ndarray[Any, Any]]:
    """Return what PyTorch computes."""
    with torch.no_grad():
        found = module(*(each.clone() for each in feeds.values()))
    return [each.numpy() for each in (found if isinstance(found, tuple | list) else (found,))]


def save_feeds(path: Path, module: torch.nn.Module, feeds: dict[str, torch.Tensor]) -> None:
    """Write inputs and results."""
    arrays = {f"in:{name}": each.numpy() for name, each in feeds.items()}
    arrays |= {f"out:{index}": each for index, each in enumerate(results_of(module, feeds))}
    np.savez(path, **arrays)


def export(folder: Path, name: str, made: networks.Network, exporter: str, sizes: str) -> None:
    """Write one file."""
    target = folder / f"{name}.{exporter}.{sizes}.onnx"
    feeds = made.feeds()
    names = list(feeds)
    options: dict[str, Any] = {"input_names": names, "dynamo": exporter == "dynamo"}
    if sizes == "dynamic":
        if exporter == "dynamo":
            # The exporter finds which sizes are equal, or sums of others.
            free = [dict.fromkeys(made.open[key], torch.export.Dim.AUTO) for key in names]
            fixed = len(names) - made.repeated
            options["dynamic_shapes"] = (*free[:fixed], tuple(free[fixed:])) if made.repeated else tuple(free)
        else:
            options["dynamic_axes"] = {key: made.open[key] for key in names if made.open[key]}
    if exporter == "classic":
        options["opset_version"] = 17
    else:
        options |= {"external_data": made.is_large, "verbose": False}
    torch.onnx.export(made.module, tuple(feeds.values()), target, **options)


def _root(error: BaseException) -> str:
    """Return the error that caused all others, in one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {' '.join(str(error).split()):.300}"


def main() -> None:
    """Export what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--full", action="store_true", help="the published sizes instead of small ones")
    parser.add_argument("--forms", default="", help="such as classic.fixed,dynamo.dynamic; all if not given")
    parser.add_argument("--only", default="", help="names of networks, with commas between them")
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    wanted = [each for each in chosen.only.split(",") if each] or list(networks.NETWORKS)
    for name in wanted:
        torch.manual_seed(0)
        try:
            made = networks.NETWORKS[name](chosen.full)
            made.module.eval()
            disturb(made.module)
            save_feeds(chosen.folder / f"{name}.fixed.npz", made.module, made.feeds())
            save_feeds(chosen.folder / f"{name}.dynamic.npz", made.module, made.other_feeds())
        except Exception:  # noqa: BLE001 -- the other networks are exported, too
            print(f"{name}: not made: {traceback.format_exc(limit=-2)}", flush=True)
            continue
        for exporter in ("classic", "dynamo"):
            for sizes in ("fixed", "dynamic"):
                if chosen.forms and f"{exporter}.{sizes}" not in chosen.forms.split(","):
                    continue
                try:
                    export(chosen.folder, name, made, exporter, sizes)
                    print(f"{name}.{exporter}.{sizes}: exported", flush=True)
                except Exception as error:  # noqa: BLE001 -- exporters raise errors of many kinds
                    print(f"{name}.{exporter}.{sizes}: not exported: {_root(error)}", flush=True)


if __name__ == "__main__":
    main()
