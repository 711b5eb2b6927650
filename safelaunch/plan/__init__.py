"""Resolved -> Plan: argv, environment and script of each node, with slots."""
