"""The report's page: pictures and tables put into the template."""

from __future__ import annotations

from pathcast import __version__
from pathcast.demo import Result
from pathcast.report import plots
from pathcast.report.templates import templates

_templates = templates("pathcast.report")


def render(result: Result) -> str:
    """The report as one HTML page that needs no other file."""
    measured, evaluation = result.measured, result.evaluation
    flow = result.fit.flows[0]
    losses = [(epoch.end_s, epoch.end_cwnd) for epoch in flow.epochs]
    pictures = {
        "cwnd": plots.cwnd_plot(measured.trace.flow(), losses, result.training_s),
        "curve": plots.curve_plot(result.fit.curves[0], measured.path.loss),
        "band": plots.band_plot(evaluation, measured.trace.metadata["mss_bytes"]),
        "error": plots.error_plot(evaluation),
    }
    return _templates.get_template("page.html.j2").render(
        result=result,
        measured=measured,
        run=measured.run,
        flow=flow,
        curve=result.fit.curves[0],
        evaluation=evaluation,
        models=evaluation.models(),
        pictures=pictures,
        metadata=measured.trace.metadata,
        version=__version__,
    )
