"""Checks of ports, interfaces and the routes between hosts."""
