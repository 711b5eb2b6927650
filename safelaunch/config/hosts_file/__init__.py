"""The hosts file: read, add, edit, lock."""
