"""The evaluation as one command: the paper's networks on the kernel's TCP, scored against its figures.

`pathcast evaluate suite`; docs/suite.md says how to run it and what comes out.
"""

from pathcast.experiments.suite.networks import NETWORKS, Cell, Form, cells

__all__ = ["NETWORKS", "Cell", "Form", "cells"]
