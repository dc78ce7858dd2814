"""The coordinator: the process that knows who wants what, who works on it, and who holds which memory."""
