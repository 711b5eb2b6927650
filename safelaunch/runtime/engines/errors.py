"""Why an engine does not have a job that was handed to it."""

from __future__ import annotations


class SubmitError(Exception):
    """The engine has not accepted the job; the message has its own words."""


class UnclearSubmitError(SubmitError):
    """The engine did not answer: it may have accepted the job."""


class MissingProgram(SubmitError):  # noqa: N818 - its name is in the messages of the agent
    """The program that submits is not on PATH."""


class UnreachableEngine(SubmitError):  # noqa: N818 - its name is in the messages of the agent
    """Nothing answers at the engine's address as it does; the job was not handed over."""
