"""Which model of a path explains what was seen: the simplest one, unless another explains clearly more."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from pathcast.calibration import competitors
from pathcast.calibration.changes import mean_of, rate_steps
from pathcast.calibration.closed_forms import FirstEstimate, comes_in_clumps
from pathcast.calibration.cross_traffic import MAYBE_STEADY, Steady, steady_traffic
from pathcast.calibration.features import first_seconds
from pathcast.calibration.fit import Posterior, fit
from pathcast.calibration.imitation import Runner, Sender
from pathcast.calibration.inference import ROUNDS, RUNS
from pathcast.calibration.paths import SIMPLEST, Link, Model
from pathcast.calibration.prior import Prior
from pathcast.calibration.sharing import link_use_of
from pathcast.exceptions import ModelError

#: A fit, and where it began.
Fitted = tuple[Posterior, FirstEstimate]

#: From this misfit on, the path has something that these parameters do not describe.
MISFIT = 1.5
#: Shares of the time in which a policer limits the flow, by the evidence of `limits`: from the first on, a policer is
#: considered beside a queue; from the second on, as likely as it.
_MAYBE_POLICED, _PROBABLY_POLICED = 0.2, 0.5
#: What else a path may be like, beside flows that compete: managed queues, and jitter.
_MANAGED = (Model(queue="codel"), Model(queue="pie"))
_JITTERY = Model(has_jitter=True)
#: From these misfits on they are considered; they are believed if the misfit falls to this part at most, what has no more
#: parameters than a plain queue, to that.
_MAYBE_MANAGED, _MAYBE_SHARED, _OTHER_PART, _MANAGED_PART = 0.5, 0.9, 0.75, 0.8
#: To which part the misfit must fall for a policer to be believed that was not probable before.
_POLICED_PART = 0.8
#: By how much a policer that was not probable before, or flows that compete, must lead a simpler path in the logarithm of
#: the evidence: features depend on each other, so that this is odds of about 50 to 1.
_LEAD = 10.0
#: From this lead on, flows that may compete are kept beside a path of the flow's own, each as often as it is probable.
_LEAST_LEAD = 3.0
#: Several flows that steady traffic is seen by agree on its part of the link to within this.
_SAME_PART = 0.05
#: Rounds of simulations, and packets of the flow, that tell which of them are likely.
_SCREENING, _SCREENING_PACKETS = 3, 40_000


def likeliest(
    flows: Sequence[Sender],
    policer_share: float,
    *,
    draws: int,
    seed: int,
    runner: Runner,
    prior: Prior | None,
    progress: Callable[[float], None] | None,
) -> Fitted:
    """Fit a queue, a policer where the flow looks like that, and other models where neither explains it.

    Between the first two, misfit and evidence decide; others are taken only if they explain clearly more. Flows that
    compete, which take long to simulate, are considered where acknowledgments show them, and where nothing else explains
    the flow.

    Args:
        flows: that used the path one after another.
        policer_share: of the time in which a policer seems to limit one of them.
        draws: samples of the posterior.
        seed: of the simulations.
        runner: runs them.
        prior: of queue and losses, learned from known paths.
        progress: called with the part of the work that is done, 0 to 1.

    Raises:
        ModelError: no simulated flow resembles what was seen.

    """
    search = _Search(flows, draws, seed, runner, prior, progress)
    others = _others(flows)
    order = [Model(policed=True), SIMPLEST]
    if policer_share < _PROBABLY_POLICED:
        order.reverse()
    best = search.fitted(order[0], until=0.3)
    closest = _misfit(best)
    if closest > MISFIT or policer_share >= _MAYBE_POLICED:
        with suppress(ModelError):
            other = search.fitted(order[1], until=0.4)
            closest = min(closest, _misfit(other))
            best = _policed_or_not(best, other, policer_share)
    steady = _steady(flows)
    if steady is not None:
        best = search.beside_steady(best, steady)
    closest = min(closest, _misfit(best))
    if others and not (best[0].model.steady_part and steady and steady.is_clear):
        best = search.beside_others(best)
    if not best[0].model.competing:
        in_clumps = any(comes_in_clumps(one.seen) for one in flows)
        if _misfit(best) > _MAYBE_MANAGED or in_clumps:
            best = search.beyond(best, closest, in_clumps=in_clumps, shared=others is None)
    if progress:
        progress(1.0)
    return best


class _Search:
    """Fits models to flows one after another, and says how far it is."""

    def __init__(
        self,
        flows: Sequence[Sender],
        draws: int,
        seed: int,
        runner: Runner,
        prior: Prior | None,
        progress: Callable[[float], None] | None,
    ) -> None:
        self._flows, self._draws, self._seed = flows, draws, seed
        self._runner, self._prior, self._progress = runner, prior, progress
        self._done = 0.0

    def fitted(
        self,
        model: Model,
        *,
        until: float,
        like: Sequence[Sender] | None = None,
        rounds: int = ROUNDS,
    ) -> Fitted:
        """Fit a model; afterwards `until` of the work is done."""
        from_, self._done = self._done, until
        total, tell = RUNS * rounds, self._progress
        return fit(
            self._flows if like is None else like,
            draws=self._draws,
            seed=self._seed,
            model=model,
            rounds=rounds,
            runner=self._runner,
            prior=self._prior,
            progress=(lambda done: tell(from_ + (until - from_) * done / total)) if tell else None,
        )

    def beside_steady(self, best: Fitted, steady: Steady) -> Fitted:
        """Fit a path whose link other traffic of a constant rate takes a part of, as acknowledgments show.

        Without it, the same flow comes from a slower link: acknowledgments alone tell them apart.
        """
        if best[0].model.policed and not steady.is_clear:
            return best
        with suppress(ModelError):
            found = self.fitted(Model(steady_part=steady.part), until=self._done + 0.1)
            explains = _misfit(found) <= _MAYBE_MANAGED
            # what no plain path explains either may be flows that react; beside BBR they get a part that hardly changes
            is_closer = _misfit(found) <= _misfit(best) <= _MAYBE_SHARED
            is_clearly_closer = _misfit(found) <= _OTHER_PART * _misfit(best)
            has_bbr = any("bbr" in one.scheme for one in self._flows)
            is_believed = steady.is_clear or (is_clearly_closer and not has_bbr)
            if explains or is_closer or (is_believed and _evidence(found) > _evidence(best)):
                return found
        return best

    def beside_others(self, best: Fitted) -> Fitted:
        """Fit flows that share the path, where acknowledgments show that others do.

        `best` is returned if none explain the flow or have more evidence, or if it has steady traffic and more evidence.
        """
        begin = self._begin()
        found = [one for family in competitors.FAMILIES for one in self._family(begin, family)]
        full = self._in_full(competitors.plausible(found))
        most = max(_misfit(best), _MAYBE_SHARED)
        has_steady = best[0].model.steady_part > 0
        explaining = [
            one
            for one in full
            if _evidence(one) > _evidence(best) or (_misfit(one) <= most and not has_steady)
        ]
        return competitors.mixed(explaining, self._draws) if explaining else best

    def _begin(self) -> list[Sender]:
        return [_beginning(one, _SCREENING_PACKETS / len(self._flows)) for one in self._flows]

    def _in_full(self, models: Sequence[Model]) -> list[Fitted]:
        """Fit models that were fitted roughly; one by which no flow resembles what was seen is left out."""
        found, from_ = [], self._done
        for number, model in enumerate(models, 1):
            with suppress(ModelError):
                until = from_ + (1 - from_) * number / len(models)
                found.append(self.fitted(model, until=until))
        return found

    def beyond(self, best: Fitted, closest: float, *, in_clumps: bool, shared: bool) -> Fitted:
        """Consider what else the path may be like; return the best of that if it explains clearly more, else `best`.

        Args:
            best: what was believed so far.
            closest: the least misfit of all that was fitted, believed or not.
            in_clumps: packets of a flow arrive in clumps.
            shared: other flows may use the link; acknowledgments do not tell.

        """
        begin = self._begin()
        plain = self._with_jitter(best, begin, in_clumps=in_clumps)
        if _misfit(plain) <= _MAYBE_MANAGED:
            return plain
        screened: list[tuple[Sequence[Sender], Model]] = [(begin, one) for one in _MANAGED]
        changing = _changing(self._flows)
        if changing is not None:
            # what changes later is not seen in the beginning
            screened.append((self._flows, Model(link=changing)))
        tried = self._screened(screened, until=0.5)
        explained = any(
            one.misfit <= min(_MAYBE_MANAGED, _part(one.model) * closest) for one in tried
        )
        if shared and not explained and closest > _MAYBE_SHARED:
            tried += self._shared(best, begin)
        likely = min([best[0], *tried], key=lambda one: one.misfit)
        part = _part(likely.model)
        if likely is best[0] or likely.misfit > part * closest:
            return plain
        models = [likely.model]
        if likely.model.competing:
            models = competitors.plausible([one for one in tried if one.model.competing])
        explaining = [one for one in self._in_full(models) if _misfit(one) <= part * closest]
        if likely.model.competing:
            return self._alone_or_shared(max(best, plain, key=_evidence), explaining)
        if plain is not best and _evidence(plain) > max(
            map(_evidence, explaining), default=-math.inf
        ):
            return plain
        return explaining[0] if explaining else best

    def _alone_or_shared(self, simpler: Fitted, shared: Sequence[Fitted]) -> Fitted:
        """Choose between a path of the flow's own and sets of flows that compete; both, where neither clearly leads."""
        lead = max(map(_evidence, shared), default=-math.inf) - _evidence(simpler)
        if lead < _LEAST_LEAD:
            return simpler
        if lead < _LEAD:
            if not _is_plain(simpler[0].model):
                return simpler
            shared = [simpler, *shared]
        return competitors.mixed(shared, self._draws)

    def _with_jitter(self, best: Fitted, begin: Sequence[Sender], *, in_clumps: bool) -> Fitted:
        """Fit a path with jitter; return it if it explains clearly more, or has more evidence and packets come in clumps."""
        if not in_clumps:
            screened = self._screened([(begin, _JITTERY)], until=self._done + 0.05)
            if not screened or screened[0].misfit > _MANAGED_PART * _misfit(best):
                return best
        with suppress(ModelError):
            found = self.fitted(_JITTERY, until=self._done + 0.05)
            clearly = _misfit(found) <= _MANAGED_PART * _misfit(best)
            if clearly or (in_clumps and _evidence(found) > _evidence(best)):
                return found
        return best

    def _screened(
        self, screened: Sequence[tuple[Sequence[Sender], Model]], *, until: float
    ) -> list[Posterior]:
        """Fit models roughly; one by which no flow resembles what was seen explains nothing, and is left out."""
        from_, found = self._done, []
        for number, (like, model) in enumerate(screened, 1):
            with suppress(ModelError):
                part = from_ + (until - from_) * number / len(screened)
                found.append(self.fitted(model, until=part, like=like, rounds=_SCREENING)[0])
        return found

    def _shared(self, best: Fitted, begin: Sequence[Sender]) -> list[Posterior]:
        """Fit sets of flows that compete roughly; return those with more evidence than `best` has when fitted as roughly."""
        alone = self._screened([(begin, best[0].model)], until=self._done + 0.02)
        least = max((one.log_evidence for one in alone), default=-math.inf)
        found = [one for family in competitors.FAMILIES for one in self._family(begin, family)]
        return [one for one in found if one.log_evidence > least]

    def _family(self, begin: Sequence[Sender], family: Sequence[Model]) -> list[Posterior]:
        """Fit sets of ever more flows roughly, until more of them only explain less."""
        found: list[Posterior] = []
        for model in family:
            found += self._screened([(begin, model)], until=self._done + 0.2 / competitors.COUNT)
            if competitors.are_too_many(found):
                break
        return found


def _others(flows: Sequence[Sender]) -> bool | None:
    """Whether others share the link, by all flows' acknowledgments; None if these do not tell, or do not agree."""
    found = [link_use_of(one.seen) for one in flows]
    told = {one.others_part > 0 for one in found if one is not None}
    return told.pop() if len(told) == 1 else None


def _is_plain(model: Model) -> bool:
    """Say whether a path has a queue, a link and delays as those have that flows share."""
    return replace(model, has_jitter=False) == SIMPLEST


def _part(model: Model) -> float:
    """To which part the misfit must fall for a model to be believed."""
    return _MANAGED_PART if model in _MANAGED else _OTHER_PART


def _steady(flows: Sequence[Sender]) -> Steady | None:
    """Return what may be steady traffic by all flows' acknowledgments, with its mean part; None unless they agree."""
    every = [steady_traffic(flow.seen, MAYBE_STEADY) for flow in flows]
    found = [one for one in every if one is not None]
    parts = [one.part for one in found]
    if len(parts) < len(flows) or max(parts) - min(parts) > _SAME_PART:
        return None
    is_clear = all(one.is_clear for one in found)
    return replace(found[0], part=sum(parts) / len(parts), is_clear=is_clear)


def _changing(flows: Sequence[Sender]) -> Link | None:
    """How the rate changed, if one flow saw it change."""
    if len(flows) != 1:
        return None
    seen = flows[0].seen
    steps = rate_steps(seen)
    if len(steps) < 2:
        return None
    mean_bps = mean_of(steps, seen.duration_s)
    factors = tuple((start_s, rate / mean_bps) for start_s, rate in steps)
    return Link("steps", steps=factors, period_s=seen.duration_s)


def _beginning(flow: Sender, packets: float) -> Sender:
    """The first packets of a flow, about so many."""
    part = min(packets / max(float(flow.seen.acked[-1]), 1.0), 1.0)
    return replace(flow, seen=first_seconds(flow.seen, part * flow.seen.duration_s))


def _misfit(fitted: Fitted) -> float:
    return fitted[0].misfit


def _evidence(fitted: Fitted) -> float:
    return fitted[0].log_evidence


def _policed_or_not(one: Fitted, other: Fitted, policer_share: float) -> Fitted:
    """Choose between a plain queue and a policer, of which either may be the first.

    A policer has one parameter more, the link's rate, and a bucket that empties at some random losses explains these too:
    one that was not probable before must have clearly more evidence.
    """
    policed, plain = (one, other) if one[0].model.policed else (other, one)
    is_probable = policer_share >= _PROBABLY_POLICED
    part, lead = (1.0, 0.0) if is_probable else (_POLICED_PART, _LEAD)
    is_closer = _misfit(policed) <= part * _misfit(plain)
    return policed if is_closer and _evidence(policed) > _evidence(plain) + lead else plain


__all__ = ["MISFIT", "likeliest"]
