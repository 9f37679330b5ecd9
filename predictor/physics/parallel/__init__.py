"""How a model is split over GPUs: which messages that takes, over which link, behind what."""
