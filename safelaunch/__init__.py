"""safelaunch: start multi-GPU training jobs right, own them, and tell how they ended."""

__version__ = "0.1.0"
