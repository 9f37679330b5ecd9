"""The process that kube-scheduler and the API server ask."""
