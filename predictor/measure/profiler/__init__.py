"""Measures a device: operator and collective tables in the layout of ``profiles/``."""
