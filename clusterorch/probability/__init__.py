"""Here live the laws of chance: elementary functions, noise, lifetimes and emission families."""
