"""Tasks: what is asked for, in TOML or Python, and carrying it out."""
