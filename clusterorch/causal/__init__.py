"""Here live graphs, gates, delays and interventions."""
