"""Export a checkpoint of scripts/train.py as one file that needs no Python class."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
import yaml

from src.model import DigitNet


def main() -> None:
    """Trace the network with the weights of the checkpoint."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="settings of the training")
    parser.add_argument("--checkpoint", type=Path, required=True, help="folder with model.pt")
    parser.add_argument("--out", type=Path, required=True, help="file to write")
    args = parser.parse_args()
    settings = yaml.safe_load(args.config.read_text(encoding="utf-8"))
    model = DigitNet(settings["channels"])
    model.load_state_dict(torch.load(args.checkpoint / "model.pt", weights_only=True))
    exported = torch.jit.trace(model.eval(), torch.zeros(1, 1, 8, 8))
    args.out.parent.mkdir(parents=True, exist_ok=True)
    torch.jit.save(exported, args.out)
    print(f"exported {args.checkpoint} as {args.out}", flush=True)


if __name__ == "__main__":
    main()
