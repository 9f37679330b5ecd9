"""What a service that answers a scheduler needs: log, metrics, predictor, reload of its files."""
