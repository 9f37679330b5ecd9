"""What is asked: the training job, its precision, its phases, where it runs."""
