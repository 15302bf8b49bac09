"""Pathcast: measure a network path once, forecast how any application will perform on it.

```python
import pathcast

path = pathcast.Path.load("paths/demo.toml")
report, trace = pathcast.simulate(path, ["cubic"], duration_s=60)
curve = pathcast.fit(trace).curves[0]
scores = pathcast.evaluate(trace, [1, 5, 10]).horizons
```
"""

from importlib.metadata import version

from pathcast.batch import Results, Simulation, simulate_many
from pathcast.clusters import ClusterCurve, ClusterPoint, LevelBasis, LossClusters
from pathcast.convert import Conversion, convert
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
from pathcast.follow import CurveEstimate, Followed, FollowedCurve, PathChange, follow
from pathcast.latency import (
    Latency,
    LatencyEvaluation,
    LatencyScore,
    LearnedLatencies,
    evaluate_latency,
    latency,
    latency_on_trace,
)
from pathcast.min_plus import Arrivals, Curve
from pathcast.models import (
    MODELS,
    QUANTILE_LEVELS,
    SUITED,
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
    evaluate,
    fit,
    pooled,
)
from pathcast.path import Path
from pathcast.runs import (
    Capabilities,
    FlowReport,
    MessageReport,
    RunReport,
    capabilities,
    emulate,
    simulate,
)
from pathcast.scenario import Scenario
from pathcast.short_flow import ShortFlowEstimate, SizeEstimate, estimate
from pathcast.trace import FlowSeries, Trace, TraceWarning, read_trace
from pathcast.watch import Watch, WatchedFlow, WatchReport, watch

__version__ = version("pathcast")

__all__ = [
    "MODELS",
    "QUANTILE_LEVELS",
    "SUITED",
    "Arrivals",
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
    "FlowReport",
    "FlowSeries",
    "Followed",
    "FollowedCurve",
    "Forecast",
    "Forecaster",
    "HorizonScore",
    "Latency",
    "LatencyEvaluation",
    "LatencyScore",
    "LearnedLatencies",
    "LevelBasis",
    "LiveError",
    "LossClusters",
    "LossCurve",
    "MessageReport",
    "ModelError",
    "Path",
    "PathChange",
    "PathFileError",
    "PathcastError",
    "Predictions",
    "ProbeError",
    "ProbingError",
    "Results",
    "RunReport",
    "Scenario",
    "SchemeError",
    "ShortFlowEstimate",
    "Simulation",
    "SimulationError",
    "SizeEstimate",
    "State",
    "Trace",
    "TraceError",
    "TraceWarning",
    "Watch",
    "WatchReport",
    "WatchedFlow",
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
    "pooled",
    "read_trace",
    "simulate",
    "simulate_many",
    "watch",
]
