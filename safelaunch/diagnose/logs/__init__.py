"""Where `diagnose` reads logs: files, folders of ranks and nodes, standard input."""
