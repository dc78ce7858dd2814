"""The clients of Dask that calls take."""

from __future__ import annotations

from distributed import Client

from poolrt.spelling import describe_type

from .errors import ClusterError


def check_client(client: object) -> None:
    """Raise TypeError for an object that is no client of synchronous code, and ClusterError for a closed client."""
    if not isinstance(client, Client) or client.asynchronous:
        what = "an asynchronous Client" if isinstance(client, Client) else describe_type(client)
        raise TypeError(f"client: expect a dask.distributed.Client of synchronous code, got {what}")
    if client.status == "closed":
        raise ClusterError("client: it is closed: make a new Client")
