"""How wrong predictions are: scores, methods side by side, cross-validation protocols."""
