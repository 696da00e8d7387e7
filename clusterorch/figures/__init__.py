"""Here live pictures of results and traces; nothing in them is computed here."""
