"""Workers that are killed while runs are under way: right results, and the worker set complete again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap

import pytest

from .conftest import NetworkMaker
from .networks import LASTING
from .surroundings import PROGRAM_S, Surroundings, json_of, wait_until


def kill_one_at_work(warm: Surroundings, client: subprocess.Popen[str], killed: list[int]) -> None:
    """Kill a worker that is at work and that was there from the beginning, if any still is."""

    def at_work() -> list[int]:
        assert client.poll() is None, client.communicate()[1]
        return [pid for pid in warm.at_work(client.pid) if pid not in killed]

    wait_until(lambda: len(at_work()) == 2, 60.0, lambda: f"not two at work: {warm.strangers()}")
    victim = min(at_work())
    os.kill(victim, signal.SIGKILL)
    killed.append(victim)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "runs"), [(LASTING, 800), ("resnet50", 200)])
def test_killing_each_worker_in_turn_under_hundreds_of_runs_costs_no_result(
    warm: Surroundings, network: NetworkMaker, name: str, runs: int
) -> None:
    words = network(name).words()
    warm.json(*words)
    # Given runs under way on two workers, which take longer than it does to replace both
    client = warm.start(*words, "--repeat", str(runs), "--workers", "2", "--json")
    # When each worker is killed, the second after the first has been replaced
    killed: list[int] = []
    for _ in range(2):
        kill_one_at_work(warm, client, killed)
    out, err = client.communicate(timeout=PROGRAM_S)
    # Then each result is right, and the worker set is complete again
    found = json_of(subprocess.CompletedProcess(client.args, client.returncode, out, err))
    pids = {worker["pid"] for worker in found["workers"]}
    assert found["workers_lost"] == 2
    assert len(pids) == 2
    assert not pids & set(killed)


_API = """
    import json, os, signal, sys, time
    import numpy as np
    import poolrt

    path, name, x, y = sys.argv[1:]
    x, (y,) = np.load(x), np.load(y).values()

    def workers(killed):
        until = time.monotonic() + 60
        while time.monotonic() < until:
            found = [worker["pid"] for worker in pool.stats()["workers"]]
            if 0 not in found and not set(found) & set(killed):
                return found
        sys.exit(f"not up within a minute, or not replaced: {found}, killed {killed}")

    with poolrt.Pool(workers=2) as pool:
        model = pool.load(poolrt.load_onnx(path), progress=False)
        first = workers([])
        wrong = 0
        futures = []
        for number in range(200):
            futures.append(model.submit(**{name: x}))
            if number in (60, 120):
                os.kill(first[number // 60 - 1], signal.SIGKILL)
        for future in futures:
            (output,) = future.result(60).values()
            wrong += not np.allclose(output, y, 1e-3, 1e-7)
        last = workers(first)
        print(json.dumps({"wrong": wrong, "first": first, "last": last, "lost": pool.stats()["workers_lost"]}))
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", [LASTING, "squeezenet"])
def test_killing_each_worker_in_turn_costs_no_result_of_the_api_either(
    warm: Surroundings, network: NetworkMaker, name: str
) -> None:
    made = network(name)
    files = [str(made.path.with_suffix(suffix)) for suffix in (".x.npy", ".y.npz")]
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(_API), str(made.path), made.input_name, *files],
        env=warm.environment(), cwd=warm.folder, capture_output=True, text=True, timeout=PROGRAM_S, check=False,
    )  # fmt: skip
    found = json_of(done)
    assert (found["wrong"], found["lost"], len(set(found["last"]))) == (0, 2, 2)
    assert not set(found["first"]) & set(found["last"])
