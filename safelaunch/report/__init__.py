"""Reports on runs: the bundle of `report`, the differences of `diff`.

Files of a run are read and never changed. Everything in a bundle goes through `redact`.
"""
