"""Scripts of a start that are complete only later: of later attempts, or with late values."""
