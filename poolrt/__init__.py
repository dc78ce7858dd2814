"""poolrt: graphs of numeric primitives on a pool of worker processes, each kernel compiled once."""
