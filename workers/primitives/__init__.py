"""The framework of primitives: candidates, keys, entries, cache and creation. Part of no key."""
