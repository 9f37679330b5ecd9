"""The site's memory: what similar runs took, and what that says of a job."""
