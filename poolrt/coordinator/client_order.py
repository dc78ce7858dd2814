"""The order of the jobs that wait: first come between clients, by priority among those of one client.

A job that goes before others of its client takes their places, so a client's priorities delay no other client.
"""

from __future__ import annotations

from collections import deque

from poolrt.priorities import divide, find_place

from .jobs import Job, Model


class ClientOrder:
    """Puts jobs into queues. Clients that use no priorities cost nothing but a look into a set."""

    def __init__(self) -> None:
        #: Clients that have used priorities.
        self.clients: set[int] = set()

    def note_model(self, model: Model) -> None:
        """Keep the order of a client that has loaded a model with a priority."""
        if model.priority:
            self.clients.add(model.client)

    def put(self, queue: deque[Job], job: Job) -> None:
        """Add a job to a queue, in its order."""
        if job.priority:
            self.clients.add(job.client)
        queue.append(job)
        if job.client not in self.clients:
            return
        places = [place for place, each in enumerate(queue) if each.client == job.client]
        own = [queue[place] for place in places[:-1]]
        first = find_place(own, job.priority)
        before, behind = divide(own[first:])
        for place, each in zip(places[first:], [*before, job, *behind], strict=True):
            queue[place] = each

    def forget(self, client: int) -> None:
        """Forget a client that has disconnected."""
        self.clients.discard(client)
