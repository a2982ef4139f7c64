"""Where theory and data meet: plans, phase maps, forecasts and diagnoses."""
