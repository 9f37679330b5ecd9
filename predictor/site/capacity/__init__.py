"""Where GPU-hours went, what the queue still needs, what a change would buy."""
