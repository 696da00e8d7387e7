"""Here live the likelihoods of one slice: the background's, and every hypothesis' ratio to it.

Every loop is sequential or runs elementwise along sites and entities; nothing depends on how many
instances are filtered together.  Sums over sites are kept as a vector until the last moment, so
that their order is fixed and they still run several lanes wide.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from clusterorch.inference.plan import ADDITIVE, CHORAL, MOST_GAP, Plan
from clusterorch.models.rows import CHORUS, CONTINUOUS, DISCRETE
from clusterorch.probability.elementary import exp, log, log_add

_ROOT_TWO_PI = 2.5066282746310002


@njit(cache=True, error_model="numpy")
def continuous_density(x, mean, sd, a, spread, last, outlier, outlier_mean, outlier_sd):  # noqa: PLR0913
    """Contaminated density of one sample given the last one taken."""
    centre = mean + a * (last - mean)
    width = sd * spread
    z = (x - centre) / width
    w = (x - outlier_mean) / outlier_sd
    own = (1.0 - outlier) / (width * _ROOT_TWO_PI) * exp(-0.5 * z * z)
    return own + outlier / (outlier_sd * _ROOT_TWO_PI) * exp(-0.5 * w * w)


@njit(cache=True, error_model="numpy")
def background_evidence(plan, phase, values, last, gap, density):
    """Log density of a slice under the empty slot, nats; leaves continuous densities in `density`."""
    total = 0.0
    for s in range(plan.kind.shape[0]):
        start, end, row = plan.offset[s], plan.offset[s + 1], plan.background[phase, s]
        kind = plan.kind[s]
        if kind == CONTINUOUS:
            absent = plan.rows[row, 2]
            for e in range(start, end):
                x = values[e]
                density[e] = 1.0
                if x == x:
                    if x == np.inf:
                        density[e] = absent
                    else:
                        g = gap[e]
                        density[e] = (1.0 - absent) * continuous_density(
                            x, plan.rows[row, 0], plan.rows[row, 1], plan.decay[s, g], plan.spread[s, g],
                            last[e], plan.outlier[s, 0], plan.outlier[s, 1], plan.outlier[s, 2],
                        )  # fmt: skip
                    total += log(density[e])
        elif kind == DISCRETE:
            for e in range(start, end):
                if values[e] == values[e]:
                    total += plan.log_rows[row, int(values[e])]
        elif kind == CHORUS:
            told, quiet = _chorus_sums(plan, row, 3, values, start, end)
            total += _either(plan.rows[row, 0], told, quiet)
        elif values[start] == values[start]:
            total += _speaker_background(plan.rows[row, 0], plan.members[s], values[start])
    return total


@njit(cache=True, error_model="numpy")
def _bernoulli(p, x):
    return log(p) if x > 0.5 else log(1.0 - p)


@njit(cache=True, error_model="numpy")
def _chorus_sums(plan, row, column, values, start, end):
    """Log densities of a chorus told (all members alike) and silent."""
    told = quiet = 0.0
    for e in range(start, end):
        if values[e] == values[e]:
            told += _bernoulli(plan.rows[row, column], values[e])
            quiet += _bernoulli(plan.rows[row, 4], values[e])
    return told, quiet


@njit(cache=True, error_model="numpy")
def _either(told, log_told, log_quiet):
    """log(told exp(log_told) + (1 - told) exp(log_quiet))."""
    return log_add(log(told) + log_told, log(1.0 - told) + log_quiet)


@njit(cache=True, error_model="numpy")
def _speaker_background(speaks, members, speaker):
    # With an empty slot every member stands at rest, so all weigh alike.
    return log(1.0 - speaks) if speaker < 0.0 else log(speaks) - log(float(members))


@njit(cache=True, error_model="numpy")
def fill_slots(plan, phase, values, last, gap, density, units, groups):
    """Ratio to the background of every slot of a phase, for every entity, and its group sums."""
    for j in range(plan.slot_range[phase], plan.slot_range[phase + 1]):
        s, row, column, at = plan.slot_signal[j], plan.slot_row[j], plan.slot_column[j], plan.slot_unit[j]
        start, count = plan.offset[s], plan.offset[s + 1] - plan.offset[s]
        if column >= 0:
            p, quiet = plan.rows[row, column], plan.rows[row, 4]
            spoke, silent = log(p) - log(quiet), log(1.0 - p) - log(1.0 - quiet)
            for e in range(count):
                x = values[start + e]
                units[at + e] = (spoke if x > 0.5 else silent) if x == x else 0.0
        elif plan.kind[s] == DISCRETE:
            base = plan.background[phase, s]
            for e in range(count):
                x = values[start + e]
                c = int(x) if x == x else 0
                units[at + e] = plan.log_rows[row, c] - plan.log_rows[base, c] if x == x else 0.0
        else:
            _continuous_slot(plan, s, row, values, last, gap, density, units, at)
        for level in range(3):
            if plan.slot_group[j, level] >= 0:
                to, where = plan.slot_group[j, level], plan.group_map[s, level]
                for g in range(plan.group_count[s, level]):
                    groups[to + g] = 0.0
                for e in range(count):
                    groups[to + plan.maps[where + e]] += units[at + e]


@njit(cache=True, error_model="numpy")
def _continuous_slot(plan, s, row, values, last, gap, density, units, at):
    start, count = plan.offset[s], plan.offset[s + 1] - plan.offset[s]
    mean, sd, absent = plan.rows[row, 0], plan.rows[row, 1], plan.rows[row, 2]
    outlier, outlier_mean, outlier_sd = plan.outlier[s, 0], plan.outlier[s, 1], plan.outlier[s, 2]
    for e in range(count):
        x = values[start + e]
        if x != x:
            units[at + e] = 0.0
        elif x == np.inf:
            units[at + e] = log(absent / density[start + e])
        else:
            g = gap[start + e]
            own = (1.0 - absent) * continuous_density(
                x, mean, sd, plan.decay[s, g], plan.spread[s, g], last[start + e], outlier, outlier_mean, outlier_sd
            )
            units[at + e] = log(own / density[start + e])


@njit(cache=True, error_model="numpy")
def _total(plan, slot, units):
    if slot < 0:
        return 0.0
    s, at = plan.slot_signal[slot], plan.slot_unit[slot]
    total = 0.0
    for e in range(plan.offset[s + 1] - plan.offset[s]):
        total += units[at + e]
    return total


@njit(cache=True, error_model="numpy")
def _add_difference(plan, out, to, sites, level, where, slot, minus, units, groups):  # noqa: PLR0913
    """out[site] += (sum of `slot` - sum of `minus`) over the group that each site points to."""
    if level < 0 or slot == minus:
        return
    for sign in range(2):
        j = slot if sign == 0 else minus
        if j < 0:
            continue
        factor = 1.0 if sign == 0 else -1.0
        if level == 0:
            at = plan.slot_unit[j]
            for site in range(sites):
                out[to + site] += factor * units[at + plan.maps[where + site]]
        else:
            at = plan.slot_group[j, level - 1]
            for site in range(sites):
                out[to + site] += factor * groups[at + plan.maps[where + site]]


@njit(cache=True, error_model="numpy")
def fill_terms(plan, phase, values, units, groups, terms):
    """Each signal's share in each hypothesis, for every site."""
    for t in range(plan.term_range[phase], plan.term_range[phase + 1]):
        to, sites, s = plan.term_out[t], plan.term_sites[t], plan.term_signal[t]
        rest, near, site = plan.term_slots[t, 0], plan.term_slots[t, 1], plan.term_slots[t, 2]
        near_level, near_map = plan.term_near[t, 0], plan.term_near[t, 1]
        site_level, site_map = plan.term_site[t, 0], plan.term_site[t, 1]
        if plan.term_form[t] == ADDITIVE or plan.term_form[t] == CHORAL:
            total = _total(plan, rest, units)
            for i in range(sites):
                terms[to + i] = total
            _add_difference(plan, terms, to, sites, near_level, near_map, near, rest, units, groups)
            inner = near if near_level >= 0 else rest
            _add_difference(plan, terms, to, sites, site_level, site_map, site, inner, units, groups)
            if plan.term_form[t] == CHORAL:
                _choral(plan, phase, t, values, terms)
        else:
            _speaking(plan, phase, t, s, values[plan.offset[s]], terms)


@njit(cache=True, error_model="numpy")
def _choral(plan, phase, t, values, terms):
    """Turn told-against-quiet ratios into the ratio of the whole chorus to its background."""
    s, row, to = plan.term_signal[t], plan.term_row[t], plan.term_out[t]
    base = plan.background[phase, s]
    start, end = plan.offset[s], plan.offset[s + 1]
    _, quiet = _chorus_sums(plan, row, 3, values, start, end)
    told_base, quiet_base = _chorus_sums(plan, base, 3, values, start, end)
    background = _either(plan.rows[base, 0], told_base, quiet_base)
    log_told, log_silent = log(plan.rows[row, 0]), log(1.0 - plan.rows[row, 0])
    for i in range(plan.term_sites[t]):
        terms[to + i] = log_add(log_told + terms[to + i], log_silent) + quiet - background


@njit(cache=True, error_model="numpy")
def _in_group(plan, s, level_and_map, site, member):
    """Whether a member belongs to the group that a site points to."""
    level, where = level_and_map[0], level_and_map[1]
    if level < 0:
        return False
    group = member if level == 0 else plan.maps[plan.group_map[s, level - 1] + member]
    return group == plan.maps[where + site]


@njit(cache=True, error_model="numpy")
def _speaking(plan, phase, t, s, speaker, terms):
    to, row, members = plan.term_out[t], plan.term_row[t], plan.members[s]
    background = _speaker_background(plan.rows[plan.background[phase, s], 0], members, speaker)
    at_site, near, rest = plan.rows[row, 1], plan.rows[row, 2], plan.rows[row, 3]
    for i in range(plan.term_sites[t]):
        if speaker != speaker:
            terms[to + i] = 0.0
        elif speaker < 0.0:
            terms[to + i] = log(1.0 - plan.rows[row, 0]) - background
        else:
            nears, sites = plan.maps[plan.term_counts[t, 0] + i], plan.maps[plan.term_counts[t, 1] + i]
            total = rest * (members - nears - sites) + near * nears + at_site * sites
            weight = rest
            if _in_group(plan, s, plan.term_near[t], i, int(speaker)):
                weight = near
            if _in_group(plan, s, plan.term_site[t], i, int(speaker)):
                weight = at_site
            terms[to + i] = log(plan.rows[row, 0]) + log(weight / total) - background


@njit(cache=True, error_model="numpy")
def fill_patterns(plan, phase, terms, patterns):
    """Log-likelihood ratio to the empty slot of every distinct choice of rows, for every site."""
    for j in range(plan.pattern_range[phase], plan.pattern_range[phase + 1]):
        to, sites = plan.pattern_out[j], plan.pattern_sites[j]
        for i in range(sites):
            patterns[to + i] = 0.0
        for k in range(plan.pattern_terms[j], plan.pattern_terms[j + 1]):
            at = plan.term_out[plan.pattern_term[k]]
            for i in range(sites):
                patterns[to + i] += terms[at + i]


@njit(cache=True, error_model="numpy")
def remember(plan, values, last, gap):
    """Keep the last sample taken of every continuous signal, and how many slices ago it was."""
    for s in range(plan.kind.shape[0]):
        if plan.kind[s] == CONTINUOUS:
            for e in range(plan.offset[s], plan.offset[s + 1]):
                x = values[e]
                if x == x and x != np.inf:
                    last[e], gap[e] = x, 1
                elif 0 < gap[e] < MOST_GAP - 1:
                    gap[e] += 1
