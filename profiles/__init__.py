"""Data of precision-time: GPUs, operator and collective tables, measurements, models."""
