"""Finds numbers of a job that do not fit together, before its framework does after minutes.

The rules are in rules.yaml, one record each; docs/arithmetic.md describes how to add one.
Pure: the job and the configurations that its arguments name are parameters.
"""

from __future__ import annotations

from safelaunch.analysis.arithmetic.evaluate import Problem, find_problems
from safelaunch.analysis.arithmetic.program import Subject, named_configs, subject_of
from safelaunch.analysis.arithmetic.rules import FAIL, WARN

__all__ = ["FAIL", "WARN", "Problem", "Subject", "find_problems", "named_configs", "subject_of"]
