"""Networks of transformers and torch that catalog entries describe."""
