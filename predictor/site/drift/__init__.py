"""Whether predictions are still right: errors by week, and alarms when a cluster has changed."""
