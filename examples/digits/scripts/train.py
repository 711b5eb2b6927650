"""Train a small network on handwritten digits with Hugging Face Accelerate.

Start it through a launcher, with the folder that holds `src` on PYTHONPATH. Every process runs
this file; Accelerate joins them into one world and splits each epoch's data between them.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import torch
import yaml
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader

from src.data import train_test_split
from src.model import DigitNet
from src.world import check_world_size, close

REQUIRED_ACCURACY = 0.95
Batch = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Settings:
    """The keys of the configuration file; a key missing or misspelt there fails at once."""

    epochs: int
    batch_size: int
    lr: float
    weight_decay: float
    channels: int


def parse_args() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="YAML file with the settings")
    parser.add_argument("--seed", type=int, default=0, help="seed of the weights and the shuffling")
    parser.add_argument("--epochs", type=int, help="override the configured number of epochs")
    parser.add_argument("--out", type=Path, help="folder for a checkpoint of each epoch")
    parser.add_argument("--world-size", type=int, default=2, help="number of processes expected")
    return parser.parse_args()


def train_epoch(
    accelerator: Accelerator,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loader: DataLoader[Batch],
) -> tuple[float, float]:
    """Make one pass over the training data; return its mean loss and accuracy in all processes."""
    model.train()
    totals = torch.zeros(3, device=accelerator.device)  # loss, correct answers, images
    for images, labels in loader:
        logits = model(images)
        loss = functional.cross_entropy(logits, labels)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        totals[0] += loss.detach() * len(labels)
        totals[1] += (logits.argmax(dim=1) == labels).sum()
        totals[2] += len(labels)
    loss_sum, n_correct, n_images = accelerator.reduce(totals, reduction="sum").tolist()
    return loss_sum / n_images, n_correct / n_images


@torch.inference_mode()
def evaluate(accelerator: Accelerator, model: nn.Module, loader: DataLoader[Batch]) -> float:
    """Return the accuracy on all of the test data; every process gets the same number.

    gather_for_metrics drops the images that were repeated to give each process full batches.
    """
    model.eval()
    hits = []
    for images, labels in loader:
        hits.append(accelerator.gather_for_metrics(model(images).argmax(dim=1) == labels))
    return torch.cat(hits).float().mean().item()


def save(
    accelerator: Accelerator, model: nn.Module, folder: Path, metrics: dict[str, float]
) -> None:
    """Save the weights of an epoch and what they have reached; the folder appears when whole."""
    if accelerator.is_main_process:
        unfinished = folder.with_name(f"tmp-{folder.name}")
        unfinished.mkdir(parents=True, exist_ok=True)
        torch.save(accelerator.unwrap_model(model).state_dict(), unfinished / "model.pt")
        (unfinished / "metrics.json").write_text(json.dumps(metrics), encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        unfinished.rename(folder)


def run(accelerator: Accelerator, settings: Settings, epochs: int, out: Path | None) -> float:
    """Train, then test once; return the test accuracy."""
    train_set, test_set = train_test_split()
    model = DigitNet(settings.channels)
    model, optimizer, train_loader, test_loader = accelerator.prepare(
        model,
        torch.optim.AdamW(model.parameters(), lr=settings.lr, weight_decay=settings.weight_decay),
        DataLoader(train_set, batch_size=settings.batch_size, shuffle=True),
        DataLoader(test_set, batch_size=settings.batch_size),
    )
    for epoch in range(1, epochs + 1):
        loss, accuracy = train_epoch(accelerator, model, optimizer, train_loader)
        accelerator.print(
            f"epoch {epoch}/{epochs} loss {loss:.4f} accuracy {accuracy:.2f}", flush=True
        )
        if out is not None:
            save(accelerator, model, out / f"epoch-{epoch}", {"loss": loss, "accuracy": accuracy})
    accuracy = evaluate(accelerator, model, test_loader)
    accelerator.print(f"test accuracy: {accuracy:.4f}", flush=True)
    return accuracy


def main() -> int:
    """Run the job and return its exit status: 1 when the network learned too little."""
    args = parse_args()
    settings = Settings(**yaml.safe_load(args.config.read_text(encoding="utf-8")))
    accelerator = Accelerator()
    check_world_size(accelerator, args.world_size)
    set_seed(args.seed)
    epochs = settings.epochs if args.epochs is None else args.epochs
    accuracy = run(accelerator, settings, epochs, args.out)
    if accuracy < REQUIRED_ACCURACY and accelerator.is_main_process:
        print(f"the test accuracy is below {REQUIRED_ACCURACY}", file=sys.stderr)
    close(accelerator)
    return 0 if accuracy >= REQUIRED_ACCURACY else 1


if __name__ == "__main__":
    sys.exit(main())
