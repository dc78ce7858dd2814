"""A pool's shared memory: the arena's allocator, and a client's slots and arrays in it."""
