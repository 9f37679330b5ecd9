"""Whether predictions are still right, and alarms when a cluster has changed."""
