"""A generated sample of a cluster's past, to show what commands do and to measure them."""
