"""Loss curves and forecasts: measured on a flow, and used to forecast it."""

from __future__ import annotations

from pathcast._evaluate import (
    DEFAULT_HORIZONS_S,
    MODELS,
    QUANTILE_LEVELS,
    Evaluation,
    HorizonScore,
    LeftOut,
    Predictions,
    Protocol,
    evaluate,
    evaluate_flows,
    judged,
    pooled,
)
from pathcast._fit import (
    NO_OPPONENTS,
    SUITED,
    CurvePoint,
    Epoch,
    Fit,
    FlowFit,
    LossCurve,
    check_rtt,
    chosen_cc,
    columns,
    curve_dict,
    fit,
    law_of,
    not_applicable,
)
from pathcast._forecaster import Forecast, Forecaster
from pathcast._scores import BandScore, Skill

__all__ = [
    "DEFAULT_HORIZONS_S",
    "MODELS",
    "NO_OPPONENTS",
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
    "LeftOut",
    "LossCurve",
    "Predictions",
    "Protocol",
    "Skill",
    "check_rtt",
    "chosen_cc",
    "columns",
    "curve_dict",
    "evaluate",
    "evaluate_flows",
    "fit",
    "judged",
    "law_of",
    "not_applicable",
    "pooled",
]
