"""The code that a run was launched with: its record, and its contents to get it back."""
