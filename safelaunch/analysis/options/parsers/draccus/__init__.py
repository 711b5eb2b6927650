"""Options of programs that use draccus or pyrallis: trees of dataclasses, set by dotted names."""
