"""Command lines of training frameworks: programs with subcommands that start their own ranks."""
