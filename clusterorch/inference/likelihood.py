"""Here live the likelihoods of one slice: the background's, and every hypothesis' ratio to it.

Inner loops run over unsigned indices, which cannot wrap around, and choose with selects instead of
branches: that is what lets them run several lanes wide.  Views are avoided inside them, because a
view is counted by reference, and the counting costs more than a short loop; nor do they get the
whole plan, which is handed over by value.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from clusterorch.inference.plan import MOST_GAP, Plan
from clusterorch.inference.slots import ADDITIVE, CHORAL
from clusterorch.models.rows import CHORUS, CONTINUOUS, DISCRETE
from clusterorch.probability.elementary import exp, log, log_add

_ROOT_TWO_PI = 2.5066282746310002
_FARTHEST = 1380.0  # squared distance, in standard deviations, at which a density is still a normal number


@njit(cache=True, error_model="numpy", forceinline=True)
def continuous_density(
    x: float,
    mean: float,
    sd: float,
    a: float,
    spread: float,
    last: float,
    outlier: float,
    outlier_mean: float,
    outlier_sd: float,
) -> float:
    """Contaminated density of one sample given the last one taken."""
    centre = mean + a * (last - mean)
    width = sd * spread
    z = (x - centre) / width
    w = (x - outlier_mean) / outlier_sd
    own = (1.0 - outlier) / (width * _ROOT_TWO_PI) * exp(-0.5 * z * z)
    # Beyond the smallest double an outlier is as far as it gets: then it tells no hypothesis from another.
    far = w * w if w * w < _FARTHEST else _FARTHEST
    return own + outlier / (outlier_sd * _ROOT_TWO_PI) * exp(-0.5 * far)


@njit(cache=True, error_model="numpy", forceinline=True)
def classify(plan: Plan, values: np.ndarray, classes: np.ndarray) -> None:
    """Class numbers of the discrete signals; a value that was not delivered gets the last column."""
    missing = plan.log_rows.shape[1] - 1
    for s in range(plan.kind.shape[0]):
        if plan.kind[s] == DISCRETE:
            x = values[plan.offset[s] : plan.offset[s + 1]]
            c = classes[plan.offset[s] : plan.offset[s + 1]]
            for e in range(x.shape[0]):
                c[e] = np.uint64(x[e]) if x[e] == x[e] else np.uint64(missing)


@njit(cache=True, error_model="numpy", forceinline=True)
def sum_of(values: np.ndarray, start: int, n: int) -> float:
    """Sum of values[start : start + n] in a fixed order, eight partial sums wide; unsigned arguments."""
    a = b = c = d = e = f = g = h = 0.0
    whole = n // np.uint64(8)
    for i in range(whole):
        at = start + np.uint64(8) * i
        a += values[at]
        b += values[at + np.uint64(1)]
        c += values[at + np.uint64(2)]
        d += values[at + np.uint64(3)]
        e += values[at + np.uint64(4)]
        f += values[at + np.uint64(5)]
        g += values[at + np.uint64(6)]
        h += values[at + np.uint64(7)]
    total = ((a + b) + (c + d)) + ((e + f) + (g + h))
    for i in range(np.uint64(8) * whole, n):
        total += values[start + i]
    return total


@njit(cache=True, error_model="numpy")
def background_evidence(
    plan: Plan,
    view: int,
    values: np.ndarray,
    last: np.ndarray,
    gap: np.ndarray,
    density: np.ndarray,
    classes: np.ndarray,
    inertia: np.ndarray,
    spreads: np.ndarray,
) -> float:
    """Log density of a slice under the empty slot, nats.

    Leaves for the slots: continuous densities in `density`, class numbers in `classes`, memory ** gap
    in `inertia` and the share of the spread that is left to chance in `spreads`.
    """
    classify(plan, values, classes)
    total = 0.0
    for s in range(plan.kind.shape[0]):
        start, end, row = plan.offset[s], plan.offset[s + 1], plan.background[view, s]
        kind = plan.kind[s]
        if kind == CONTINUOUS:
            x, into, g = values[start:end], density[start:end], gap[start:end]
            a, spread = inertia[start:end], spreads[start:end]
            decay_of, spread_of = plan.decay[s], plan.spread[s]
            for e in range(x.shape[0]):
                a[e], spread[e] = decay_of[g[e]], spread_of[g[e]]
            _densities(plan.rows[row], plan.outlier[s], x, last[start:end], a, spread, into)
            for e in range(x.shape[0]):
                total += log(into[e]) if x[e] == x[e] else 0.0
        elif kind == DISCRETE:
            table, c = plan.log_rows[row], classes[start:end]
            for e in range(c.shape[0]):
                total += table[c[e]]
        elif kind == CHORUS:
            told, quiet = _chorus_sums(plan, row, 3, values, start, end)
            total += _either(plan.rows[row, 0], told, quiet)
        elif values[start] == values[start]:
            total += _speaker_background(plan.rows[row, 0], plan.members[s], values[start])
    return total


@njit(cache=True, error_model="numpy")
def _densities(row, outlier, x, last, a, spread, out):
    """Density of each sample under one row; the probability of being absent where there is no value."""
    mean, sd, absent = row[0], row[1], row[2]
    share, outlier_mean, outlier_sd = outlier[0], outlier[1], outlier[2]
    for e in range(x.shape[0]):
        own = (1.0 - absent) * continuous_density(
            x[e], mean, sd, a[e], spread[e], last[e], share, outlier_mean, outlier_sd
        )
        out[e] = absent if x[e] == np.inf else own


@njit(cache=True, error_model="numpy", forceinline=True)
def _chorus_sums(plan, row, column, values, start, end):
    """Log densities of a chorus told (all members alike) and silent."""
    told = quiet = 0.0
    spoke, silent = log(plan.rows[row, column]), log(1.0 - plan.rows[row, column])
    quiet_spoke, quiet_silent = log(plan.rows[row, 4]), log(1.0 - plan.rows[row, 4])
    for e in range(start, end):
        if values[e] == values[e]:
            told += spoke if values[e] > 0.5 else silent
            quiet += quiet_spoke if values[e] > 0.5 else quiet_silent
    return told, quiet


@njit(cache=True, error_model="numpy", forceinline=True)
def _either(told, log_told, log_quiet):
    """log(told exp(log_told) + (1 - told) exp(log_quiet))."""
    return log_add(log(told) + log_told, log(1.0 - told) + log_quiet)


@njit(cache=True, error_model="numpy", forceinline=True)
def _speaker_background(speaks, members, speaker):
    # With an empty slot every member stands at rest, so all weigh alike.
    return log(1.0 - speaks) if speaker < 0.0 else log(speaks) - log(float(members))


@njit(cache=True, error_model="numpy", forceinline=True)
def _look_up(out, at, n, table, row, classes, start):
    for e in range(n):
        out[at + e] = table[row, classes[start + e]]


@njit(cache=True, error_model="numpy", forceinline=True)
def _chorus_ratios(out, at, n, values, start, p, quiet):
    spoke, silent = log(p) - log(quiet), log(1.0 - p) - log(1.0 - quiet)
    for e in range(n):
        x = values[start + e]
        ratio = spoke if x > 0.5 else silent
        out[at + e] = ratio if x == x else 0.0


@njit(cache=True, error_model="numpy")
def _continuous_ratios(row, outlier, values, last, density, inertia, spreads, start, out, at, n):
    mean, sd, absent = row[0], row[1], row[2]
    share, outlier_mean, outlier_sd = outlier[0], outlier[1], outlier[2]
    for e in range(n):
        x = values[start + e]
        own = (1.0 - absent) * continuous_density(
            x, mean, sd, inertia[start + e], spreads[start + e], last[start + e], share, outlier_mean, outlier_sd
        )
        ratio = log((absent if x == np.inf else own) / density[start + e])
        out[at + e] = ratio if x == x else 0.0


@njit(cache=True, error_model="numpy")
def fill_slots(
    plan: Plan,
    view: int,
    values: np.ndarray,
    last: np.ndarray,
    density: np.ndarray,
    classes: np.ndarray,
    inertia: np.ndarray,
    spreads: np.ndarray,
    units: np.ndarray,
    groups: np.ndarray,
    totals: np.ndarray,
) -> None:
    """Ratio to the background of every slot of a view, for every entity, and the group sums it needs."""
    for j in range(plan.slot_range[view], plan.slot_range[view + 1]):
        s, row, column = plan.slot_signal[j], plan.slot_row[j], plan.slot_column[j]
        start, at = np.uint64(plan.offset[s]), np.uint64(plan.slot_unit[j])
        n = np.uint64(plan.offset[s + 1] - plan.offset[s])
        if column >= 0:
            _chorus_ratios(units, at, n, values, start, plan.rows[row, column], plan.rows[row, 4])
        elif plan.kind[s] == DISCRETE:
            _look_up(units, at, n, plan.slot_table, np.uint64(j), classes, start)
        else:
            own, outlier = plan.rows[row], plan.outlier[s]
            _continuous_ratios(own, outlier, values, last, density, inertia, spreads, start, units, at, n)
        totals[j - plan.slot_range[view]] = sum_of(units, at, n)
        if plan.slot_group[j, 0] >= 0:
            _node_sums(units, at, groups, plan.slot_group[j, 0], plan.group_count[s, 0], plan.per_node[s])
        for level in range(1, 3):
            if plan.slot_group[j, level] >= 0:
                count, where = plan.group_count[s, level], plan.group_map[s, level]
                _group_sums(units, at, n, groups, plan.slot_group[j, level], count, plan.maps, where)


@njit(cache=True, error_model="numpy")
def _node_sums(units, at, groups, to, nodes, per_node):
    first, count, each = np.uint64(to), np.uint64(nodes), np.uint64(per_node)
    for node in range(count):
        total = 0.0
        for g in range(each):
            total += units[at + node * each + g]
        groups[first + node] = total


@njit(cache=True, error_model="numpy")
def _group_sums(units, at, n, groups, to, count, maps, where):
    for g in range(count):
        groups[to + g] = 0.0
    for e in range(n):
        groups[to + maps[np.uint64(where) + e]] += units[at + e]


@njit(cache=True, error_model="numpy")
def _add_straight(out, at, n, factor, source, start):
    for i in range(n):
        out[at + i] += factor * source[start + i]


@njit(cache=True, error_model="numpy")
def _add_gathered(out, at, n, factor, source, start, maps, first):
    for i in range(n):
        out[at + i] += factor * source[start + np.uint64(maps[first + i])]


@njit(cache=True, error_model="numpy")
def _add_sums(out, at, n, level, where, straight, unit, group, factor, units, groups, maps):
    """out[at + site] += factor x (sum of a slot over the group that each site points to)."""
    if level > 0:
        _add_gathered(out, at, n, factor, groups, np.uint64(group), maps, np.uint64(where))
    elif straight:
        _add_straight(out, at, n, factor, units, np.uint64(unit))
    else:
        _add_gathered(out, at, n, factor, units, np.uint64(unit), maps, np.uint64(where))


@njit(cache=True, error_model="numpy")
def fill_terms(
    plan: Plan,
    view: int,
    values: np.ndarray,
    units: np.ndarray,
    groups: np.ndarray,
    totals: np.ndarray,
    terms: np.ndarray,
) -> None:
    """Each signal's share in each hypothesis, for every site; the same for all sites: only at the first."""
    for t in range(plan.term_range[view], plan.term_range[view + 1]):
        s, rest = plan.term_signal[t], plan.term_slots[t, 0]
        near, site = plan.term_slots[t, 1], plan.term_slots[t, 2]
        at, n = np.uint64(plan.term_out[t]), np.uint64(plan.term_sites[t])
        if plan.term_form[t] == ADDITIVE or plan.term_form[t] == CHORAL:
            total = totals[rest - plan.slot_range[view]] if rest >= 0 else 0.0
            if plan.term_flat[t]:
                terms[at] = total
                continue
            for i in range(n):
                terms[at + i] = total
            near_level, site_level = plan.term_near[t, 0], plan.term_site[t, 0]
            inner = near if near_level >= 0 else rest
            for step in range(4):
                level = near_level if step < 2 else site_level
                plus, minus = (near, rest) if step < 2 else (site, inner)
                slot = plus if step % 2 == 0 else minus
                if level < 0 or plus == minus or slot < 0:
                    continue
                where = plan.term_near[t, 1] if step < 2 else plan.term_site[t, 1]
                group = plan.slot_group[slot, level - 1] if level > 0 else -1
                _add_sums(
                    terms, at, n, level, where, where == plan.identity, plan.slot_unit[slot], group,
                    1.0 if step % 2 == 0 else -1.0, units, groups, plan.maps,
                )  # fmt: skip
            if plan.term_form[t] == CHORAL:
                _choral(plan, view, t, values, terms, at, n)
        else:
            _speaking(plan, view, t, s, values[plan.offset[s]], terms)


@njit(cache=True, error_model="numpy", forceinline=True)
def _choral(plan, view, t, values, out, at, n):
    """Turn told-against-quiet ratios into the ratio of the whole chorus to its background."""
    s, row = plan.term_signal[t], plan.term_row[t]
    base = plan.background[view, s]
    start, end = plan.offset[s], plan.offset[s + 1]
    _, quiet = _chorus_sums(plan, row, 3, values, start, end)
    told_base, quiet_base = _chorus_sums(plan, base, 3, values, start, end)
    background = _either(plan.rows[base, 0], told_base, quiet_base)
    log_told, log_silent = log(plan.rows[row, 0]), log(1.0 - plan.rows[row, 0])
    for i in range(n):
        out[at + i] = log_add(log_told + out[at + i], log_silent) + quiet - background


@njit(cache=True, error_model="numpy", forceinline=True)
def _in_group(plan, s, level_and_map, site, member):
    """Whether a member belongs to the group that a site points to."""
    level, where = level_and_map[0], level_and_map[1]
    if level < 0:
        return False
    group = member if level == 0 else plan.maps[plan.group_map[s, level - 1] + member]
    return group == plan.maps[where + site]


@njit(cache=True, error_model="numpy", forceinline=True)
def _speaking(plan, view, t, s, speaker, out):
    row, members = plan.term_row[t], plan.members[s]
    common = 0.0
    if speaker == speaker:
        own = log(1.0 - plan.rows[row, 0]) if speaker < 0.0 else log(plan.rows[row, 0])
        common = own - _speaker_background(plan.rows[plan.background[view, s], 0], members, speaker)
    at, sites_here = plan.term_out[t], plan.term_sites[t]
    for i in range(sites_here):
        out[at + i] = common
    if not speaker >= 0.0:
        return
    at_site, near, rest = plan.rows[row, 1], plan.rows[row, 2], plan.rows[row, 3]
    for i in range(sites_here):
        nears, sites = plan.maps[plan.term_counts[t, 0] + i], plan.maps[plan.term_counts[t, 1] + i]
        total = rest * (members - nears - sites) + near * nears + at_site * sites
        weight = rest
        if _in_group(plan, s, plan.term_near[t], i, int(speaker)):
            weight = near
        if _in_group(plan, s, plan.term_site[t], i, int(speaker)):
            weight = at_site
        out[at + i] += log(weight / total)


@njit(cache=True, error_model="numpy")
def fill_patterns(plan: Plan, view: int, terms: np.ndarray, patterns: np.ndarray) -> None:
    """Log-likelihood ratio to the empty slot of every distinct choice of rows, for every site."""
    for j in range(plan.pattern_range[view], plan.pattern_range[view + 1]):
        at, n = np.uint64(plan.pattern_out[j]), np.uint64(plan.pattern_sites[j])
        common = 0.0
        for k in range(plan.pattern_terms[j], plan.pattern_terms[j + 1]):
            if plan.term_flat[plan.pattern_term[k]]:
                common += terms[plan.term_out[plan.pattern_term[k]]]
        for i in range(n):
            patterns[at + i] = common
        for k in range(plan.pattern_terms[j], plan.pattern_terms[j + 1]):
            if plan.term_flat[plan.pattern_term[k]]:
                continue
            start = np.uint64(plan.term_out[plan.pattern_term[k]])
            for i in range(n):
                patterns[at + i] += terms[start + i]


@njit(cache=True, error_model="numpy")
def remember(plan: Plan, values: np.ndarray, last: np.ndarray, gap: np.ndarray) -> None:
    """Keep the last sample taken of every continuous signal, and how many slices ago it was."""
    for s in range(plan.kind.shape[0]):
        if plan.kind[s] == CONTINUOUS:
            for e in range(plan.offset[s], plan.offset[s + 1]):
                x = values[e]
                if x == x and x != np.inf:
                    last[e], gap[e] = x, 1
                elif 0 < gap[e] < MOST_GAP - 1:
                    gap[e] += 1
