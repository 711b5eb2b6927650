"""Kubernetes: the manifest of a plan, for `kubectl apply`."""
