"""What the first run, future or map of a process imports."""

from __future__ import annotations


def import_first_runs() -> None:
    """Import it all, and wait for threads that import some of it.

    A process that is forked while another thread imports a module waits for that thread for ever if it needs the module: no
    thread of the parent exists there, and Python keeps its lock. So this comes before each fork.
    """
    import poolrt.functions.call_rings
    import poolrt.workers.engines.object_loader
    import poolrt.workers.primitives.entry  # noqa: F401 - imported for later calls

    from . import mapped_runs, ring_ends, ring_run, submitted_run  # noqa: F401 - the same
