"""Load the handwritten digits that the example ships and divide them for training and testing."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import TensorDataset

DATA_FILE = Path(__file__).resolve().parents[1] / "data" / "digits.csv.gz"
TEST_FRACTION = 0.2
SPLIT_SEED = 0


def load_digits(path: Path = DATA_FILE) -> tuple[np.ndarray, np.ndarray]:
    """Return the images, scaled to 0..1 with shape (n, 1, 8, 8), and their labels."""
    with gzip.open(path, "rt", encoding="ascii") as stream:
        table = np.loadtxt(stream, delimiter=",", dtype=np.int64)
    images = (table[:, :-1] / 16.0).astype(np.float32).reshape(-1, 1, 8, 8)
    return images, table[:, -1]


def train_test_split() -> tuple[TensorDataset, TensorDataset]:
    """Divide the digits the same way in every process and every run.

    The division has its own seed, so that runs with different training seeds are scored on the
    same test images. The rows are shuffled first because similar hands lie together in the file.
    """
    images, labels = load_digits()
    order = np.random.default_rng(SPLIT_SEED).permutation(len(labels))
    n_test = int(len(order) * TEST_FRACTION)
    return _subset(images, labels, order[n_test:]), _subset(images, labels, order[:n_test])


def _subset(images: np.ndarray, labels: np.ndarray, rows: np.ndarray) -> TensorDataset:
    return TensorDataset(torch.from_numpy(images[rows]), torch.from_numpy(labels[rows]))
