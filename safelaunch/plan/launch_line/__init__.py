"""Launch lines as people type them: what stands before the launcher, its flags, its program."""
