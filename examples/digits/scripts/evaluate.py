"""Test an exported network on the digits that were kept back."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch

from src.data import train_test_split

REQUIRED_ACCURACY = 0.95


def main() -> int:
    """Print the accuracy; return 1 where it is too low."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="what export.py has written")
    args = parser.parse_args()
    images, labels = train_test_split()[1].tensors
    with torch.inference_mode():
        answers = torch.jit.load(args.model)(images).argmax(dim=1)
    accuracy = (answers == labels).float().mean().item()
    print(f"test accuracy of {args.model}: {accuracy:.4f}", flush=True)
    return 0 if accuracy >= REQUIRED_ACCURACY else 1


if __name__ == "__main__":
    sys.exit(main())
