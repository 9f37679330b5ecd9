"""Which training job is it: read from what users write, in comments, scripts and annotations."""
