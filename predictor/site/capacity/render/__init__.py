"""The forms of a capacity report: page, Markdown, JSON, CSV, Prometheus; ``mail`` sends it."""
