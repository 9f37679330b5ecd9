"""What a job costs in money and energy, and which plan or sweep is best."""
