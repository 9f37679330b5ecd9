"""Puts the hook, its daemon and its policy into a live cluster, proves it, and takes them out."""
