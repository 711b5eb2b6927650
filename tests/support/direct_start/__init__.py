"""What torchrun and accelerate would start, beside what a direct start of the same plan starts."""
