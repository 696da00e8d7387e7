"""Here lives the page of a diagnosis: one HTML file that tells it in the order of a post-mortem.

The file stands alone: it loads nothing, runs nothing, and its policy forbids it to.  All that comes out of logs, of
file names and of models goes through `safe`.
"""

from __future__ import annotations

from clusterorch.diagnosis.advice import Option
from clusterorch.diagnosis.contexts import Context
from clusterorch.diagnosis.diagnose import HEALTHY, Diagnosis, Weight, ranked_weights
from clusterorch.diagnosis.dossier import Dossier
from clusterorch.diagnosis.incidents import ends
from clusterorch.diagnosis.settling import Offer
from clusterorch.reports.cascade import cascade, leading_variant
from clusterorch.reports.markup import bar, facts, folded, paragraph, safe, section, table
from clusterorch.reports.ribbon import ribbon
from clusterorch.reports.stylesheet import STYLE
from clusterorch.reports.terminal import move_words, shown_modes, title_of, value_words, verdict
from clusterorch.reports.wording import how_sure, percent, when, where

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_LIGHT = 0.005  # nats
_SHOUTED = 0.05
_MOST_FILES, _MOST_UNRECOGNISED, _MOST_FINDINGS, _MOST_PLACES = 200, 100, 50, 8


def page(dossier: Dossier, *, top: int = 5) -> str:
    """The whole page.

    Args:
        dossier: what to tell.
        top: how many lines for, and how many against, the leading mode are shown.
    """
    diagnosis = dossier.diagnosis
    body = "\n".join(
        part
        for part in (
            _head(dossier),
            section("Two incidents", _two(dossier), key="incidents"),
            section("What happened", _modes(diagnosis), key="modes"),
            section("Since when, where, and what shouts", _facts(dossier), key="facts"),
            section("How the evidence moved the diagnosis", ribbon(diagnosis), key="ribbon"),
            section("The cascade, and what of it was seen", cascade(diagnosis), key="cascade"),
            section("The lines that decided", _lines(dossier, top), key="lines"),
            section("What would settle it", _settle(dossier.offers), key="settle"),
            section("What to do", _advice(dossier), key="advice"),
            section("What an agent would do next", _of_agent(dossier), key="agent"),
            section("The runner-up", _runner_up(diagnosis), key="second"),
            section("What was read", _files(diagnosis), _unrecognised(diagnosis), _findings(diagnosis), key="files"),
            _foot(diagnosis),
        )
        if part
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{safe(verdict(diagnosis))}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _head(dossier: Dossier) -> str:
    diagnosis = dossier.diagnosis
    leading, p = diagnosis.leading, diagnosis.modes[diagnosis.leading]
    title = title_of(diagnosis.model, leading)
    if not diagnosis.weights:
        kind, words = "open", "Nothing in these logs tells failures apart"
        said = "What follows is what is believed before any log is read."
    elif not dossier.decided:
        kind, words = "open", f"Undecided: perhaps {title}"
        said = f"{title} ({leading}) leads with {percent(p)}, which is less than all else together."
    else:
        kind = "good" if leading == HEALTHY else "bad"
        words = f"{how_sure(p).capitalize()}: {title}"
        said = f"{leading}, {percent(p)}, after {len(diagnosis.weights)} telling lines."
    return f'<header>\n<h1 class="{kind}">{safe(words)}</h1>\n{paragraph(safe(said), kind="dim")}\n</header>'


def _two(dossier: Dossier) -> str:
    """The two failures, where the logs hold two."""
    if dossier.incidents is None:
        return ""
    rows = []
    for name, part in (("first", dossier.incidents.first), ("then", dossier.incidents.second)):
        first, last = ends(part)
        place = f", {part.sites[0][1]}" if part.sites else ""
        span = f"{where(first)} ({when(first)}) to {where(last)}"
        rows.append((name, f'{safe(verdict(part) + place)}<br><span class="dim">{safe(span)}</span>'))
    said = f"{percent(dossier.incidents.probability)} that these are two and not one. Below, all is taken for one."
    return paragraph(safe(said), kind="dim") + facts(rows)


def _modes(diagnosis: Diagnosis) -> str:
    shown, others, rest = shown_modes(diagnosis)
    rows = [
        [
            f"<strong>{safe(name)}</strong>" if name == diagnosis.leading else safe(name),
            bar(p, "calm" if name == HEALTHY else "fill"),
            f'<span class="num">{percent(p)}</span>',
            safe(title_of(diagnosis.model, name)),
        ]
        for name, p in shown
    ]
    if others:
        number = f'<span class="num">{percent(rest)}</span>'
        rows.append([f"{len(others)} others", bar(rest), number, safe(", ".join(others))])
    return table(["mode", "", "probability", ""], rows, kind="modes")


def _facts(dossier: Dossier) -> str:
    diagnosis = dossier.diagnosis
    places = "".join(
        f'<div><span class="num">{percent(p)}</span> {safe(name)}</div>'
        for i, (_, name, p) in enumerate(diagnosis.sites[:_MOST_PLACES])
        if i == 0 or p >= 0.01
    )
    variant = leading_variant(diagnosis)
    root = "no failure: the job is healthy, or a disturbance passed" if diagnosis.leading == HEALTHY else ""
    if variant is not None:
        words = diagnosis.model.graph.nodes[variant]["title"] or variant
        root = f"{words} ({variant}, {percent(diagnosis.variants[variant])})"
    rows = [("since", _since(diagnosis))]
    if diagnosis.leading != HEALTHY or not dossier.decided:
        rows.append(("where", places))
    if diagnosis.weights:
        rows.append(("root", safe(root)))
        if diagnosis.proximate is not None and diagnosis.proximate[2] >= _SHOUTED:
            _, title, p = diagnosis.proximate
            rows.append(("what shouts", f"{safe(title)} ({percent(p)}): the symptom in the logs, not the cause"))
    return facts(rows)


def _since(diagnosis: Diagnosis) -> str:
    onset = diagnosis.onset
    if not diagnosis.weights:
        return "no line tells"
    first = f"{percent(onset.before_first_line)} that it had begun by the first telling line, "
    first += where(diagnosis.weights[0].reading)
    if onset.reading is None:
        return f'no line: probably nothing began<div class="dim">{safe(first)}</div>'
    return f'{safe(when(onset.reading))}, {safe(where(onset.reading))}<div class="dim">{safe(first)}</div>'


def _lines(dossier: Dossier, top: int) -> str:
    diagnosis = dossier.diagnosis
    around = {(c.file, c.line, c.text): c for c in dossier.contexts}
    parts = []
    for words, sign in (("for", 1.0), ("against", -1.0)):
        told = [w for w in ranked_weights(diagnosis) if sign * w.change[diagnosis.leading] > _LIGHT]
        if not told:
            continue
        parts.append(
            paragraph(f"<strong>{words.capitalize()} {safe(diagnosis.leading)}</strong>, in nats of its log odds:")
        )
        parts += [_line(diagnosis, w, around.get((w.reading.file, w.reading.line, w.reading.text))) for w in told[:top]]
        if len(told) > top:
            rest = [
                [
                    f'<span class="num">{w.change[diagnosis.leading]:+.2f}</span>',
                    safe(where(w.reading)),
                    safe(_meaning(diagnosis, w)),
                ]
                for w in told[top : top + _MOST_FILES]
            ]
            parts.append(folded(f"{len(told) - top} more lines {words}", table(["nats", "line", "says"], rest)))
    return "\n".join(parts)


def _line(diagnosis: Diagnosis, weight: Weight, context: Context | None) -> str:
    change = weight.change[diagnosis.leading]
    head = f'<span class="weight {"for" if change > 0 else "against"}">{change:+.2f}</span>'
    place = f'<code>{safe(where(weight.reading))}</code> <span class="dim">{safe(when(weight.reading))}</span>'
    before = [] if context is None else context.before
    after = [] if context is None else context.after
    rows = [*((n, text, "") for n, text in before), (weight.reading.line, weight.reading.text, "at")]
    rows += [(n, text, "") for n, text in after]
    width = len(str(rows[-1][0]))
    shown = "\n".join(
        f'<span class="{kind or "by"}"><span class="no">{number:>{width}} </span> {safe(text)}</span>'
        for number, text, kind in rows
    )
    said = paragraph(head, " ", safe(_meaning(diagnosis, weight)))
    return f'<div class="line">{said}{paragraph(place)}<pre class="log">{shown}</pre></div>'


def _meaning(diagnosis: Diagnosis, weight: Weight) -> str:
    reading = weight.reading
    value = "" if reading.value in (0, 1) else f" = {value_words(reading.value)}"
    return f"{diagnosis.model.signals[reading.signal].title}{value}, {reading.entity}"


def _settle(offers: list[Offer]) -> str:
    if not offers:
        return ""
    best = offers[0]
    if best.gain < _LIGHT:
        return paragraph("Nothing that could be gathered is expected to move the modes any more.")
    parts = [
        paragraph(
            "What is worth gathering, by the information about the mode that it is expected to give, in nats. "
            "<code>clusterorch collect --print</code> makes a script of it."
        )
    ]
    for offer in [o for o in offers if o.outcomes and o.gain >= _LIGHT]:
        error = f" ± {offer.error:.2f}" if offer.error >= _LIGHT else ""
        head = f'<span class="weight">{offer.gain:.2f}{error}</span> <strong>{safe(offer.command.title)}</strong>'
        hosts = ", ".join(s.host for s in offer.suspects if s.host)
        parts.append(paragraph(head, safe(f", {hosts}" if hosts and offer.command.runs_on != "job" else "")))
        parts.append(f"<pre>{safe(offer.command.shell)}</pre>")
        outcomes = [
            [
                f'<span class="num">{percent(o.probability)}</span>',
                f"{safe(o.what)}, {safe(o.entity)}: <strong>{safe(o.shows)}</strong>",
                _moves(o.leading, o.now, o.leads, o.then),
            ]
            for o in offer.outcomes
        ]
        parts.append(table(["chance", "the most telling thing in it", "then"], outcomes))
    rest = [
        [f'<span class="num">{o.gain:.3f}</span>', safe(o.command.title), f"<code>{safe(o.command.name)}</code>"]
        for o in offers
        if not o.outcomes or o.gain < _LIGHT
    ]
    parts.append(folded("the others", table(["nats", "command", ""], rest)) if rest else "")
    return "\n".join(parts)


def _moves(leading: str, now: float, leads: str, then: float) -> str:
    if leads == leading:
        return safe(f"{leading} stays in front, {percent(now)}")
    return safe(f"{leads} would lead, {percent(then)}; {leading} falls to {percent(now)}")


def _advice(dossier: Dossier) -> str:
    advice, diagnosis = dossier.advice, dossier.diagnosis
    if advice is None:
        return ""
    if advice.waits:
        said = (
            "No action is likely enough to help: gather evidence first."
            if diagnosis.leading != HEALTHY
            else ("Nothing needs doing as far as these logs tell.")
        )
        first = paragraph(f"<strong>{safe(advice.best.title.capitalize())}.</strong> ", safe(said))
    else:
        first = paragraph(f"<strong>{safe(_action(advice.best))}</strong>: ", safe(advice.best.title + "."))
    rows = [
        [
            safe(_action(option)), bar(option.clears, "calm"), f'<span class="num">{percent(option.clears)}</span>',
            safe(option.cost),
        ]
        for option in advice.options
    ]  # fmt: skip
    runbook = diagnosis.model.modes[diagnosis.leading].advice if diagnosis.leading in diagnosis.model.modes else ""
    closing = paragraph(
        safe(f"Runbook for {diagnosis.leading}: {runbook}. " if runbook else ""),
        "Chances are averaged over what may have happened and where; costs are not weighed against them.",
        kind="dim",
    )
    options = table(["action", "", "clears a failure", "costs"], rows, kind="modes")
    return first + (folded("what each action would clear", options) if advice.waits else options) + closing


def _of_agent(dossier: Dossier) -> str:
    """What a trained agent would do next, if one was asked."""
    told = dossier.agent
    if told is None:
        return ""
    rows = [
        [
            f'<span class="num">{percent(move.probability)}</span>', bar(move.probability, "calm"),
            safe(move_words(move)),
        ]
        for move in told.moves
    ]  # fmt: skip
    said = paragraph(
        f"<strong>{safe(told.moves[0].words)}</strong>, says agent {safe(told.agent)}: {safe(told.because)}."
    )
    assumed = "".join(f"<li>{safe(line)}</li>" for line in told.assumptions)
    closing = paragraph("The agent decides on the diagnosis and has no part in it. It was shown that:", kind="dim")
    return said + table(["its policy", "", "move"], rows, kind="modes") + closing + f"<ul>{assumed}</ul>"


def _action(option: Option) -> str:
    return f"{option.name.replace('_', ' ')}, {option.target}" if option.target else option.name


def _runner_up(diagnosis: Diagnosis) -> str:
    ranked = sorted(diagnosis.modes.items(), key=lambda item: (-item[1], item[0]))
    if not diagnosis.weights or len(ranked) < 2:
        return ""
    leading, (second, p) = diagnosis.leading, ranked[1]
    said = paragraph(f"<strong>{safe(title_of(diagnosis.model, second))}</strong> ({safe(second)}), {percent(p)}.")
    apart = sorted(diagnosis.weights, key=lambda w: -abs(w.change[leading] - w.change[second]))[:3]
    rows = [
        [
            f'<span class="num">{w.change[leading] - w.change[second]:+.2f}</span>',
            safe(_meaning(diagnosis, w)), f"<code>{safe(where(w.reading))}</code>",
        ]
        for w in apart
        if abs(w.change[leading] - w.change[second]) > _LIGHT
    ]  # fmt: skip
    if not rows:
        return said + paragraph("No line tells the two apart.")
    words = f"What separates them, in nats for {leading} rather than {second}:"
    return said + paragraph(safe(words)) + table(["nats", "sign", "line"], rows)


def _files(diagnosis: Diagnosis) -> str:
    rows = [
        [
            f"<code>{safe(f.file)}</code>", f'<span class="num">{f.lines}</span>',
            f'<span class="num">{f.recognised}</span>', safe(", ".join(sorted(f.streams)) or "none"),
        ]
        for f in diagnosis.ingested.files[:_MOST_FILES]
    ]  # fmt: skip
    left = len(diagnosis.ingested.files) - len(rows)
    more = paragraph(f"and {left} more files", kind="dim") if left > 0 else ""
    return table(["file", "lines", "recognised", "tells of"], rows) + more


def _unrecognised(diagnosis: Diagnosis) -> str:
    coverage = diagnosis.ingested.coverage
    if not coverage.unrecognised:
        return paragraph(
            f"All {coverage.lines} lines were recognised." if coverage.lines else "There was no line to read."
        )
    shown = "\n".join(f"{safe(f'{s.file}:{s.line}')}  {safe(s.text)}" for s in coverage.samples[:_MOST_UNRECOGNISED])
    summary = f"{coverage.unrecognised} of {coverage.lines} lines were not recognised"
    return folded(summary, f'<pre class="log">{shown}</pre>')


def _findings(diagnosis: Diagnosis) -> str:
    found = diagnosis.findings
    items = "".join(
        f"<li>{safe(f'{f.file}:{f.line}' if f.line else f.file or 'logs')}: {safe(f.text)}</li>"
        for f in found[:_MOST_FINDINGS]
    )
    more = f"<li>and {len(found) - _MOST_FINDINGS} more</li>" if len(found) > _MOST_FINDINGS else ""
    return f"<ul>{items}{more}</ul>" if found else ""


def _foot(diagnosis: Diagnosis) -> str:
    model = diagnosis.model
    named = " + ".join([model.name, *(path.stem for path in model.overlays)])
    return (
        f"<footer>Model {safe(named)}, sha256 <code>{safe(model.sha256)}</code>. The posterior is exact under that "
        "model; what the model assumes is in its file.</footer>"
    )
