"""Files written whole, memory that a step will take, and who does the work (this process, a pool, Ray)."""
