"""Engines give machines to a run and take them away: a package per engine.

What reads an engine's answers and joins a run on its machines; nothing here submits a job.
"""
