"""The evaluation as one command: the paper's networks on the kernel's TCP, scored against its figures.

`pathcast evaluate suite`; docs/how-to/run-the-suite.md says how to run it, docs/reference/suite.md what it writes.
"""

from pathcast.experiments.suite.networks import NETWORKS, Cell, Form, cells

__all__ = ["NETWORKS", "Cell", "Form", "cells"]
