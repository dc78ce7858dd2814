"""How large a drill is: the short form of the test suite, the usual one, and the long one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final


@dataclass(frozen=True, slots=True)
class Scale:
    """Numbers of a drill; sizes in bytes, times in seconds.

    `rounds` is how often the drill without a fault is run, `outage_s` how long a server is away or frozen, `hits` how
    many creators or servers are hit, `pause_s` the time between two calls where a run has to last through an outage.
    `kills` is how many processes of a pool are killed, `mutations` how many damaged graphs it is sent, and how many
    damaged model files are imported. `interrupts` is how
    many programs are interrupted, `soak_s` how long the soak lasts, `seed` chooses what a drill draws.
    """

    processes: int
    keys: int
    size: int
    create_s: float
    lease_s: float
    rounds: int
    outage_s: float
    hits: int
    pause_s: float
    kills: int
    mutations: int
    interrupts: int
    soak_s: float
    seed: int = 0


SHORT: Final = Scale(
    processes=5, keys=30, size=5_000, create_s=0.004, lease_s=1.0, rounds=2, outage_s=0.7, hits=2, pause_s=0.01,
    kills=5, mutations=20, interrupts=8, soak_s=20.0,
)  # fmt: skip
USUAL: Final = Scale(
    processes=16, keys=200, size=50_000, create_s=0.005, lease_s=2.0, rounds=10, outage_s=5.0, hits=4, pause_s=0.02,
    kills=200, mutations=3_000, interrupts=40, soak_s=120.0,
)  # fmt: skip
LONG: Final = replace(USUAL, rounds=20, kills=1_000, mutations=100_000, interrupts=5_000, soak_s=3600.0)
