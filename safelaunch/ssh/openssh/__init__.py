"""The system's `ssh` as a transport: its configuration, its authentication, its shared logins."""
