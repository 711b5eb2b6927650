"""What a run was, for others to read: the bundle of `report`, the differences of `diff`.

Files of a run are read and never changed. Nothing that goes into a bundle passes by `redact`.
"""
