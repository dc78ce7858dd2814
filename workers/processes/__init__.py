"""The processes of a pool and of a process without one: fork server, worker, creator, compilers, and how each is started."""
