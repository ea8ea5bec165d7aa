"""_reader."""
