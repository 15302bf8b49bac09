"""`pathcast.Estimator`: all models behind one interface."""

import dataclasses

import numpy as np
import pytest

from pathcast import MODELS, SUITED, Estimator, ModelError, Trace


@pytest.fixture(scope="module")
def sawtooth():
    """Reno between 100 and 200 packets, a packet each 0.1 s."""
    return Trace.from_columns(
        {"time_s": np.arange(3000) * 0.1, "cwnd_packets": 100.0 + np.arange(3000) % 101}
    )


@pytest.mark.parametrize("model", MODELS)
def test_every_model_fits_and_forecasts_or_says_why_not(sawtooth, model):
    estimator = Estimator.fit(model, sawtooth, cc="reno", rtt_s=0.1)
    if "reno" not in SUITED[model]:
        with pytest.raises(ModelError, match=f"{model} says nothing of this flow"):
            estimator.forecast(5)
        return
    estimate = estimator.forecast(5)
    assert estimate.quantity == "mean_cwnd_packets"
    assert 90 < estimate.point < 260
    assert list(estimate.quantiles) == sorted(estimate.quantiles)
    assert estimate.quantiles[0] < estimate.mean < estimate.quantiles[-1] * 1.5


def test_what_if_the_window_were_half(sawtooth):
    estimator = Estimator.fit("pathcast", sawtooth, cc="reno", rtt_s=0.1)
    here = estimator.state()
    assert here.phase == "avoidance"
    there = dataclasses.replace(here, cwnd_packets=here.cwnd_packets / 2)
    assert estimator.forecast(1, there).point < 0.8 * estimator.forecast(1).point


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"phase": "asleep"}, 'phase is "asleep"'),
        ({"cwnd_packets": -1.0}, "cwnd_packets is -1"),
        ({"time_s": float("nan")}, "time_s is NaN"),
        ({"held_s": float("nan")}, "held_s is NaN"),
    ],
)
def test_impossible_states_are_refused(sawtooth, change, said):
    estimator = Estimator.fit("pathcast", sawtooth, cc="reno", rtt_s=0.1)
    with pytest.raises(ModelError, match=said):
        estimator.forecast(1, dataclasses.replace(estimator.state(), **change))


def test_wrong_questions_are_refused(sawtooth):
    with pytest.raises(ModelError, match='model is "oracle", expected one of pathcast, econ'):
        Estimator.fit("oracle", sawtooth)
    with pytest.raises(ModelError, match="no forecaster for a horizon of 7 s"):
        Estimator.fit("ewma", sawtooth, cc="reno").forecast(7)
    with pytest.raises(ModelError, match="rtt"):
        Estimator.fit("ewma", sawtooth, rtt_s=-1)
