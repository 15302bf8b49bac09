"""The report: one HTML page that needs no network, with pictures and tables."""

from pathcast.report.page import render

__all__ = ["render"]
