"""Gradient descent on (x - 3)^2 from a start that the seed decides."""

import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, required=True)
parser.add_argument("--seed", type=int, required=True)
args = parser.parse_args()

x = args.seed * 7919 % 21 - 10.0
for step in range(1, 21):
    x -= args.lr * 2 * (x - 3)
    print(f"step {step}/20 loss {(x - 3) ** 2:.6f}", flush=True)
