"""The gauntlet: many kinds of worlds that are difficult in different ways."""
