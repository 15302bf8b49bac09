"""Real schemes: implementations of congestion control from package registries, behind one interface.

Each scheme is one file (`scheme`), built on demand (`build`), and run contained (`contain`) over an emulated path
(`run`). `checks` shows that each moves data, and that the controller that was asked for is at work.
"""

from pathcast.exceptions import SchemeError
from pathcast.schemes.build import Prepared, prepare
from pathcast.schemes.checks import Checked, check
from pathcast.schemes.scheme import Scheme, catalog

__all__ = ["Checked", "Prepared", "Scheme", "SchemeError", "catalog", "check", "prepare"]
