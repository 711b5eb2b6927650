"""What bash would do with a script, as far as the script alone says it. Nothing is run."""
