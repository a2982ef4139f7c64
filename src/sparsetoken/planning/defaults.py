"""What plans and forecasts take where nothing else is asked for; commands show the same."""

__all__ = ["ASSURANCE", "TRIALS"]

# Share of repeated studies that should reach a target, and how sure to be that a model does.
ASSURANCE = 0.8
# Simulated studies for each number of samples.
TRIALS = 40
