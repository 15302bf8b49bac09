"""The benchmark of attainable rates: whole configurations compared, after Lübben and Fidler.

docs/explanation/attainable-rate.md.
"""
