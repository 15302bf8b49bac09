"""Experiments of papers and users: each has cases that a backend runs, a folder that keeps them, verdicts
and a page.

`engine` is what they stand on; each other folder is one experiment.
"""
