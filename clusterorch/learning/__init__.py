"""Here live agents that learn in the environment.  The only floor that imports torch."""
