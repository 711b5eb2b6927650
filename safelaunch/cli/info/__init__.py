"""The commands facts, profiles, launchers and schema."""
