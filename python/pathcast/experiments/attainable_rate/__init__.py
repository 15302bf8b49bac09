"""The benchmark of attainable rates: whole configurations compared, after Lübben and Fidler; docs/attainable-rate.md."""
