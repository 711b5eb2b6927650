"""Parsers for what nvidia-smi prints: its table, `-L`, `-q` as text or XML, `--query-gpu`."""
