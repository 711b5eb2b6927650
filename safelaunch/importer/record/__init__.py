"""Recording: a script runs isolated, with stubs in place of launchers."""
