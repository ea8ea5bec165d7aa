"""Methods that improve a policy; each returns an `Improvement` (`result`)."""
