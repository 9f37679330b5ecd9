"""Jobs and pods that ended, for the history: what the API server still has, or shows live."""
