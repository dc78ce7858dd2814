"""Call functions of a library that compiles with Numba: `python -m tests.poolrt.numba.libraries [--plain] LIBRARY`.

Prints a JSON object: the seconds of import and calls, a digest of the results, the number of compilations, and poolrt's
counts. With ``--plain``, the library has Numba's own cache, in ``NUMBA_CACHE_DIR``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

import numpy as np


def _librosa() -> list[Any]:
    librosa = import_module("librosa")

    rate = 22050
    seconds = np.arange(2 * rate) / rate
    clicks = (np.arange(seconds.size) % (rate // 4) < 200) * 0.5
    sound = (np.sin(2 * np.pi * 440 * seconds) + clicks).astype(np.float32)
    onsets = librosa.onset.onset_strength(y=sound, sr=rate)
    tempo, beats = librosa.beat.beat_track(onset_envelope=onsets, sr=rate)
    chroma = librosa.feature.chroma_stft(y=sound, sr=rate)
    cost, path = librosa.sequence.dtw(chroma[:, :30], chroma[:, 10:40])
    peaks = librosa.util.peak_pick(onsets, pre_max=3, post_max=3, pre_avg=3, post_avg=5, delta=0.1, wait=5)
    crossings = librosa.zero_crossings(sound)
    pitch = librosa.yin(sound, fmin=100, fmax=1000, sr=rate)
    return [onsets, tempo, beats, chroma, cost, path, peaks, crossings, pitch, librosa.util.localmax(onsets)]


def _datashader() -> list[Any]:
    datashader, shading = import_module("datashader"), import_module("datashader.transfer_functions")
    pandas = import_module("pandas")

    random = np.random.default_rng(7)
    points = pandas.DataFrame({"x": random.normal(size=5000), "y": random.normal(size=5000), "v": random.random(5000)})
    canvas = datashader.Canvas(60, 40, (-3, 3), (-3, 3))
    counted = canvas.points(points, "x", "y", datashader.count())
    mean = canvas.points(points, "x", "y", datashader.mean("v"))
    lines = canvas.line(points[:50], "x", "y", datashader.any())
    image = shading.dynspread(shading.shade(counted, how="eq_hist"))
    return [np.asarray(each.values) for each in (counted, mean, lines, image)]


def _pynndescent() -> list[Any]:
    pynndescent = import_module("pynndescent")

    points = np.random.default_rng(7).random((300, 8), np.float32)
    index = pynndescent.NNDescent(points, n_neighbors=5, random_state=7, n_jobs=1)
    near, distances = index.query(points[:20], k=3)
    return [*index.neighbor_graph, near, distances]


def _umap() -> list[Any]:
    umap = import_module("umap")

    points = np.random.default_rng(7).random((120, 6), np.float32)
    return [umap.UMAP(n_neighbors=5, n_epochs=20, random_state=7, n_jobs=1, init="random").fit_transform(points)]


LIBRARIES: Final[dict[str, Callable[[], list[Any]]]] = {
    "librosa": _librosa,
    "datashader": _datashader,
    "pynndescent": _pynndescent,
    "umap": _umap,
}


def main() -> None:
    """Import the library named on the command line, and call its functions."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--plain", action="store_true", help="with Numba's own cache")
    parser.add_argument("library", choices=sorted(LIBRARIES))
    options = parser.parse_args()
    begin = time.monotonic()
    import numba
    from numba.core import event

    compiled = event.RecordingListener()
    event.register("numba:compile", compiled)
    if not options.plain:
        from poolrt.numba import install

        install()
    installed = time.monotonic()
    import_module(options.library)
    imported = time.monotonic()
    results = LIBRARIES[options.library]()
    ended = time.monotonic()
    digest = hashlib.sha256(b"".join(np.ascontiguousarray(each).tobytes() for each in results)).hexdigest()
    found = {
        "version": sys.modules[options.library].__version__,
        "numba": numba.__version__,
        "numba_s": round(installed - begin, 2),
        "import_s": round(imported - installed, 2),
        "calls_s": round(ended - imported, 2),
        "compilations": sum(1 for _, each in compiled.buffer if each.is_start),
        "digest": digest,
    }
    if not options.plain:
        from poolrt.numba import not_shared, stats

        found |= {"counts": stats(), "not_shared": not_shared()}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
