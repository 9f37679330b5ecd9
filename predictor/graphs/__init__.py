"""Operator graphs of training steps, built from the catalog without torch."""
