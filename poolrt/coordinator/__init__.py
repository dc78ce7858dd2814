"""The coordinator: the process that queues the clients' work, gives it to workers, and leases shared memory."""
