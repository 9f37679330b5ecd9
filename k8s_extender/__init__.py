"""Kubernetes: an extender that filters and ranks GPU nodes, and webhooks that fill deadlines."""
