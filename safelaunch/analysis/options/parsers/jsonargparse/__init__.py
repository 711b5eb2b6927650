"""LightningCLI and jsonargparse's `CLI`: dotted options of classes, and files of their keys."""
