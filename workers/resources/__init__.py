"""Resources: what belongs to an engine and is never cached, and who owns it."""
