"""The command `precision-time`: one module a topic, results to stdout, the rest to stderr."""
