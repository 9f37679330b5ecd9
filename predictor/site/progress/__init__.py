"""What a training prints while it runs: how far it is, how fast, and how long it still takes."""
