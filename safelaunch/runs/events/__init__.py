"""What has happened to runs, as lines for programs: one for each change, with a cursor."""
