"""Copy a project and large files to a host without rsync, and fetch results.

Uses the agent on the host (remote/agent_client.py) only by its protocol in sender.py.
"""
