"""The network: two small convolutions, enough for 8x8 digits and quick on one CPU core."""

from __future__ import annotations

import torch
from torch import nn


class DigitNet(nn.Module):
    """Classify (batch, 1, 8, 8) images into ten digits."""

    def __init__(self, channels: int = 16) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, channels, kernel_size=3, padding=1),
            nn.ReLU(),
            nn.Conv2d(channels, 2 * channels, kernel_size=3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(2 * channels * 4 * 4, 10),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return one row of ten logits per image."""
        logits: torch.Tensor = self.layers(images)
        return logits
