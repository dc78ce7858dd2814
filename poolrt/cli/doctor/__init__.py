"""`poolrt doctor`: what this machine offers and what is wrong."""
