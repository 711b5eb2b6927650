"""What is wrong in files that a launch reads, said before the launch: pure, from their text alone.

`lint` finds out what a file is and asks the rules for its kind. Nothing here opens a file, prints
or knows a host; job, profile and hosts files are read by safelaunch.config, which stands above.
"""

from __future__ import annotations
