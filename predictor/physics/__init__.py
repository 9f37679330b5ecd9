"""What operators and messages take, in time and memory."""
