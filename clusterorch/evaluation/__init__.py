"""Here live the measurements: how good diagnoses are, on incidents of known cause and on simulated ones."""
