"""What a whole hyper-parameter search takes, before it starts."""
