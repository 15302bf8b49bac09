"""The numbers of the papers, as data, by figure and table.

Seed papers: Cao et al., IMC 2019 (ECON; figures and tables of its section 5), and the estimator of short CUBIC flows
(section 5 of its paper). Errors are per cent. What a figure shows but the text does not say is not here.
"""

from __future__ import annotations

from dataclasses import dataclass

#: The alternatives of the paper's figures 5 to 7, by our names; those that hold for Reno alone are formulas.
HISTORY = ("last_sample", "ewma", "holt_winters", "harmonic_mean")
FORMULAS = ("pftk", "pftk_without_timeouts", "chen", "dunaytsev")

#: The names in the paper's tables.
NAMES = {
    "econ": "ECON",
    "last_sample": "Sun16-LS",
    "ewma": "He05-EWMA",
    "holt_winters": "He05-HoltWinters",
    "harmonic_mean": "Yin15-HM",
    "pftk": "PFTK, full",
    "pftk_without_timeouts": "PFTK",
    "chen": "Chen06",
    "dunaytsev": "Dunaytsev07",
}


@dataclass(frozen=True)
class Throughput:
    """What the paper says of one network and congestion control, for the next second.

    Attributes:
        where: figure or table.
        econ_median_pct: median error of ECON.
        best_other_median_pct: that of the best alternative.
        mean_reduction_pct: how much lower ECON's mean error is than the best alternative's; None: not published.
        others_median_pct: of each alternative, where a table has them.

    """

    where: str
    econ_median_pct: float
    best_other_median_pct: float
    mean_reduction_pct: float | None = None
    others_median_pct: tuple[tuple[str, float], ...] = ()

    @property
    def median_reduction_pct(self) -> float:
        """How much lower ECON's median error is."""
        return 100 * (1 - self.econ_median_pct / self.best_other_median_pct)


def _table(where: str, econ: float, ewma: float, hw: float, last: float, hm: float) -> Throughput:
    others = (("ewma", ewma), ("holt_winters", hw), ("last_sample", last), ("harmonic_mean", hm))
    return Throughput(where, econ, min(ewma, hw, last, hm), None, others)


#: By network and congestion control: figures 5 and 6 (medians from the text of section 5.2), table 3.
THROUGHPUT = {
    ("azure", "cubic"): Throughput("figure 5", 11.5, 36.1, 85.7),
    ("southeast", "cubic"): Throughput("figure 5", 15.5, 67.8, 92.1),
    ("northeast", "cubic"): Throughput("figure 5", 9.2, 28.5, 72.2),
    ("long-distance", "cubic"): Throughput("figure 5", 11.6, 33.5, 64.1),
    # 4 MB for writing, 6 MB for reading
    ("northeast-buffers", "cubic"): Throughput("beside figure 5", 9.6, 34.9),
    ("azure", "reno"): Throughput("figure 6", 6.1, 23.4),
    ("southeast", "reno"): Throughput("figure 6", 11.3, 22.7),
    ("northeast", "reno"): Throughput("figure 6", 10.6, 20.1),
    ("long-distance", "reno"): Throughput("figure 6", 8.6, 24.8),
    ("last-mile-0.1", "cubic"): _table("table 3", 7.8, 25.5, 31.3, 25.3, 26.9),
    ("last-mile-0.5", "cubic"): _table("table 3", 15.3, 21.9, 24.6, 22.5, 20.9),
    ("last-mile-1", "cubic"): _table("table 3", 18.5, 21.5, 22.9, 21.4, 19.9),
}

#: Section 5.2: reduction of the error of the next second against the best alternative with a training window of 10 s.
SMALL_WINDOW_REDUCTION_PCT = {"cubic": 48.0, "reno": 39.0}

#: Section 5.2: mean reduction of the error against the best alternative, by congestion control and horizon in seconds.
HORIZON_REDUCTION_PCT = {
    ("cubic", 5.0): 50.0,
    ("reno", 5.0): 38.0,
    ("cubic", 10.0): 43.0,
    ("reno", 10.0): 23.0,
}

#: Section 5.2, Northeast, median errors by window at the moment of prediction: below 50 and above 700 packets;
#: ECON's, and the range of the best alternative's.
SCWND = {
    "below 50": ("harmonic_mean", 15.0, (158.0, 264.0)),
    "above 700": ("holt_winters", 21.0, (58.0, 61.0)),
}

#: Section 5.2: how much lower ECON's median error is, over all numbers of parallel connections.
NPC_REDUCTION_PCT = (41.0, 76.0)

#: Figure 7, Reno: reduction against all other models, mean over the four intervals, and against the best in each.
CHANGING_REDUCTION_PCT = {"all": 56.0, "best": 32.0}

#: Table 2: median error of the time that 1 to 100 MB take, CUBIC.
LATENCY = {
    "azure": _table("table 2", 10.4, 35.5, 56.4, 29.6, 31.5),
    "southeast": _table("table 2", 13.1, 59.0, 83.0, 59.6, 63.9),
    "northeast": _table("table 2", 8.7, 25.4, 34.1, 26.5, 28.1),
    "long-distance": _table("table 2", 12.5, 34.3, 59.2, 26.7, 34.3),
}

#: Figure 8: Reno, Southeast, by size in MB: ECON's median error and that of the best alternative.
LATENCY_BY_SIZE = {
    "< 10 MB": (14.3, 28.9),
    "10 to 50 MB": (10.6, 18.2),
    "> 50 MB": (8.9, 10.8),
}

#: Figure 9, Reno over WiFi: median and mean error of ECON; of the best alternative (PFTK's median, Yin15-HM's mean).
LATENCY_WIRELESS = ((9.1, 11.2), (19.3, 21.4))

#: Short CUBIC flows, forecast from the first 1 MB, by size in MB: mean error of the estimator and of the rate of the
#: first 1 MB. Figure 8 (all 58 downloads), table 5 (41 without loss), table 6 (13 with loss).
SHORT_FLOWS = {
    "figure 8": {5: (8.41, 53.77), 10: (10.01, 69.38), 20: (11.39, 79.95)},
    "table 5": {5: (3.22, 54.87), 10: (2.42, 71.28), 20: (2.02, 82.14)},
    "table 6": {5: (20.91, 51.11), 10: (28.30, 64.79), 20: (33.99, 74.67)},
}
