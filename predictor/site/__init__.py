"""What jobs that ended or run teach: history, calibration, drift, replay, backtest, capacity."""
