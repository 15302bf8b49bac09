"""What papers and users compare: each experiment is cases that run in a world, kept in a folder, judged, on a page.

`engine` is what they stand on; each other folder is one experiment.
"""
