"""Python source as trees: names, calls, statements, modules."""
