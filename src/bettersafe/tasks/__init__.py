"""Tasks: settings from TOML, Python or the command line, and the functions that run and test them."""
