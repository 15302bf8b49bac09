"""The scoreboard: forecasts of many kinds of flows against the strongest other models, on cells fixed in a file."""
