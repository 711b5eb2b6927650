from __future__ import annotations

from safelaunch.analysis.python.cpu_budget import CpuBudget


def test_without_a_number_the_time_is_never_over() -> None:
    assert not CpuBudget(None).is_spent


def test_the_time_of_a_thread_is_over_once_it_has_worked_so_long() -> None:
    assert CpuBudget(-1.0).is_spent
    assert not CpuBudget(1000.0).is_spent
