"""Static analysis of the project's Python files and of the job's arguments; runs neither.

Owns what a script imports (`imports`), which options it takes (`options`), what the job's options
mean (`option_roles`) and whether its numbers fit together (`arithmetic`). It parses text; it never
imports or runs what it reads, and no input makes it raise: what cannot be read is left out, and
reported where that matters.
"""
