"""Python source as syntax trees: names, calls, import statements, modules."""
