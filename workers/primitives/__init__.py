"""The framework of primitives: descriptor, key, entry, cache and creation. Part of no key."""
