"""Reference implementations for the CPU: plain and complete, every data type, layout and attribute; asked last."""
