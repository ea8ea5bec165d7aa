"""Studies: many experiments whose truth is known, run as sweeps that can be stopped and continued."""
