"""The command line."""

import gc

# New objects between two searches for garbage. A command makes little, and each search goes through
# all that was imported: below this number a start on a host makes one, 10 ms. It is set before the
# imports, which make most of the objects.
gc.set_threshold(200_000)
