"""Reads the project's own Python and the job's words without running either.

Owns what a script imports (imports), which options it takes (flags, judge) and what the words of
a job mean (words). It parses text; it never imports or runs what it reads, and no input makes it
raise: what cannot be read is left out, and said so where that matters.
"""
