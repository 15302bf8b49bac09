"""Pathcast: measure a network path once, forecast how any application will perform on it.

Example::

    import pathcast

    path = pathcast.Path.load("demo")
    report, trace = pathcast.simulate(path, ["cubic"], duration_s=60)
    curve = pathcast.fit(trace).curves[0]
    scores = pathcast.evaluate(trace, [1, 5, 10]).horizons
"""

from __future__ import annotations

from importlib import import_module

# as in `typing`, which takes longer to import than all of this; type checkers know the name
TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathcast._advice import Advice, advise
    from pathcast._convert import Conversion, convert
    from pathcast._follow import CurveEstimate, Followed, FollowedCurve, PathChange, follow
    from pathcast._internal import __version__ as __version__
    from pathcast._latency import (
        Latency,
        LatencyEvaluation,
        LatencyScore,
        LearnedLatencies,
        evaluate_latency,
        latency,
        latency_on_trace,
    )
    from pathcast._limits import LIMITS, FlowLimits, limits
    from pathcast._page_loads import Loads, PageForecast, predict_page
    from pathcast._watch import Watch, WatchedFlow, WatchReport, watch
    from pathcast._what_if import Alternative, Interval, Outcome, WhatIf, what_if
    from pathcast.batch import Results, Simulation, simulate_many
    from pathcast.calibration import (
        Calibration,
        FlowUsed,
        Measurement,
        Parameter,
        Prior,
        SchemeFit,
        calibrate,
        calibrate_flows,
        calibrate_several,
        read_measurements,
    )
    from pathcast.calibration.sharing import LinkUse, link_use
    from pathcast.clusters import ClusterCurve, ClusterPoint, LevelBasis, LossClusters
    from pathcast.estimators import Estimate, Estimator, State
    from pathcast.exceptions import (
        ClusterError,
        DownloadError,
        EmulatorError,
        LiveError,
        ModelError,
        PathcastError,
        PathFileError,
        ProbeError,
        ProbingError,
        SchemeError,
        SimulationError,
        TraceError,
    )
    from pathcast.min_plus import Arrivals, Curve
    from pathcast.models import (
        MODELS,
        QUANTILE_LEVELS,
        SUITED,
        BandScore,
        CurvePoint,
        Epoch,
        Evaluation,
        Fit,
        FlowFit,
        Forecast,
        Forecaster,
        HorizonScore,
        LossCurve,
        Predictions,
        Skill,
        evaluate,
        fit,
        pooled,
    )
    from pathcast.page import BrowserTime, Page
    from pathcast.path import Path
    from pathcast.rates import RateForecast, RateForecaster
    from pathcast.runs import (
        Capabilities,
        FlowReport,
        MessageReport,
        PageReport,
        RunReport,
        capabilities,
        emulate,
        simulate,
    )
    from pathcast.scenario import Scenario
    from pathcast.short_flow import ShortFlowEstimate, SizeEstimate, estimate
    from pathcast.trace import FlowSeries, Trace, TraceWarning, read_trace

__all__ = [
    "LIMITS",
    "MODELS",
    "QUANTILE_LEVELS",
    "SUITED",
    "Advice",
    "Alternative",
    "Arrivals",
    "BandScore",
    "BrowserTime",
    "Calibration",
    "Capabilities",
    "ClusterCurve",
    "ClusterError",
    "ClusterPoint",
    "Conversion",
    "Curve",
    "CurveEstimate",
    "CurvePoint",
    "DownloadError",
    "EmulatorError",
    "Epoch",
    "Estimate",
    "Estimator",
    "Evaluation",
    "Fit",
    "FlowFit",
    "FlowLimits",
    "FlowReport",
    "FlowSeries",
    "FlowUsed",
    "Followed",
    "FollowedCurve",
    "Forecast",
    "Forecaster",
    "HorizonScore",
    "Interval",
    "Latency",
    "LatencyEvaluation",
    "LatencyScore",
    "LearnedLatencies",
    "LevelBasis",
    "LinkUse",
    "LiveError",
    "Loads",
    "LossClusters",
    "LossCurve",
    "Measurement",
    "MessageReport",
    "ModelError",
    "Outcome",
    "Page",
    "PageForecast",
    "PageReport",
    "Parameter",
    "Path",
    "PathChange",
    "PathFileError",
    "PathcastError",
    "Predictions",
    "Prior",
    "ProbeError",
    "ProbingError",
    "RateForecast",
    "RateForecaster",
    "Results",
    "RunReport",
    "Scenario",
    "SchemeError",
    "SchemeFit",
    "ShortFlowEstimate",
    "Simulation",
    "SimulationError",
    "SizeEstimate",
    "Skill",
    "State",
    "Trace",
    "TraceError",
    "TraceWarning",
    "Watch",
    "WatchReport",
    "WatchedFlow",
    "WhatIf",
    "advise",
    "calibrate",
    "calibrate_flows",
    "calibrate_several",
    "capabilities",
    "convert",
    "emulate",
    "estimate",
    "evaluate",
    "evaluate_latency",
    "fit",
    "follow",
    "latency",
    "latency_on_trace",
    "limits",
    "link_use",
    "pooled",
    "predict_page",
    "read_measurements",
    "read_trace",
    "simulate",
    "simulate_many",
    "watch",
    "what_if",
]

#: Where each public name is defined; the module is imported when one of its names is first used.
_PUBLIC = {
    "batch": ("Results", "Simulation", "simulate_many"),
    "clusters": ("ClusterCurve", "ClusterPoint", "LevelBasis", "LossClusters"),
    "_convert": ("Conversion", "convert"),
    "estimators": ("Estimate", "Estimator", "State"),
    "exceptions": (
        "ClusterError",
        "DownloadError",
        "EmulatorError",
        "LiveError",
        "ModelError",
        "PathcastError",
        "PathFileError",
        "ProbeError",
        "ProbingError",
        "SchemeError",
        "SimulationError",
        "TraceError",
    ),
    "_follow": ("CurveEstimate", "Followed", "FollowedCurve", "PathChange", "follow"),
    "_latency": (
        "Latency",
        "LatencyEvaluation",
        "LatencyScore",
        "LearnedLatencies",
        "evaluate_latency",
        "latency",
        "latency_on_trace",
    ),
    "_advice": ("Advice", "advise"),
    "_limits": ("LIMITS", "FlowLimits", "limits"),
    "min_plus": ("Arrivals", "Curve"),
    "models": (
        "MODELS",
        "QUANTILE_LEVELS",
        "SUITED",
        "BandScore",
        "CurvePoint",
        "Epoch",
        "Evaluation",
        "Fit",
        "FlowFit",
        "Forecast",
        "Forecaster",
        "HorizonScore",
        "LossCurve",
        "Predictions",
        "Skill",
        "evaluate",
        "fit",
        "pooled",
    ),
    "page": ("BrowserTime", "Page"),
    "rates": ("RateForecast", "RateForecaster"),
    "_page_loads": ("Loads", "PageForecast", "predict_page"),
    "path": ("Path",),
    "runs": (
        "Capabilities",
        "FlowReport",
        "MessageReport",
        "PageReport",
        "RunReport",
        "capabilities",
        "emulate",
        "simulate",
    ),
    "scenario": ("Scenario",),
    "short_flow": ("ShortFlowEstimate", "SizeEstimate", "estimate"),
    "trace": ("FlowSeries", "Trace", "TraceWarning", "read_trace"),
    "calibration.sharing": ("LinkUse", "link_use"),
    "calibration": (
        "Calibration",
        "FlowUsed",
        "Measurement",
        "Parameter",
        "Prior",
        "SchemeFit",
        "calibrate",
        "calibrate_flows",
        "calibrate_several",
        "read_measurements",
    ),
    "_what_if": ("Alternative", "Interval", "Outcome", "WhatIf", "what_if"),
    "_watch": ("Watch", "WatchedFlow", "WatchReport", "watch"),
}

_MODULE_OF = {name: module for module, names in _PUBLIC.items() for name in names}
_MODULE_OF["__version__"] = "_internal"

#: Modules that are attributes without an import.
_MODULES = {
    "_internal",
    "batch",
    "calibration",
    "cluster",
    "clusters",
    "estimators",
    "exceptions",
    "files",
    "live",
    "min_plus",
    "models",
    "path",
    "rootless",
    "runs",
    "scenario",
    "short_flow",
    "trace",
}


if not TYPE_CHECKING:  # type checkers refuse unknown names only where there is no __getattr__

    def __getattr__(name):  # noqa: ANN001, ANN202
        if name in _MODULE_OF:
            value = getattr(import_module(f"pathcast.{_MODULE_OF[name]}"), name)
        elif name in _MODULES:
            value = import_module(f"pathcast.{name}")
        else:
            raise AttributeError(f"module 'pathcast' has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
