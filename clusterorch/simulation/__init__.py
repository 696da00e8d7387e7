"""Here lives the clock that runs a compiled model forward, event by event."""
