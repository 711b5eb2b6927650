"""Finds problems in files that a launch reads, before the launch and from their text alone.

`run.check` determines the kind of a file and applies the rules for it. Nothing here opens a file,
prints or knows a host; safelaunch.config validates job, profile and hosts files.
"""
