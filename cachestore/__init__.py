"""The bytes floor: signed entries under keys, one creator each, bounded, shared on Redis."""
