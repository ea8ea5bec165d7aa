"""_system."""
