"""Limits of running jobs, re-estimated from the step rate they report."""
