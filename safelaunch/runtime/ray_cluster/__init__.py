"""A Ray for one program: brought up on the nodes of a run before it, and taken down after."""
