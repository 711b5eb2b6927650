"""Numbers of a job that do not go together, as its framework would find them after minutes.

The knowledge is in rules.yaml, one record for each rule; docs/arithmetic.md says how to add one.
Pure: a job and the configurations that its arguments name come as arguments.
"""

from __future__ import annotations

from safelaunch.analysis.arithmetic.evaluate import Problem, problems
from safelaunch.analysis.arithmetic.program import Subject, named_configs, subject_of
from safelaunch.analysis.arithmetic.rules import FAIL, WARN

__all__ = ["FAIL", "WARN", "Problem", "Subject", "named_configs", "problems", "subject_of"]
