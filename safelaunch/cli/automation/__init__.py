"""Commands for programs that drive safelaunch."""
