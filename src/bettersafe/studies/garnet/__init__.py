"""The study of random worlds (Garnets)."""
