"""The page of a diagnosis: whole, alone, and safe whatever the logs say."""

import dataclasses
import itertools
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest

from clusterorch.diagnosis.contexts import Context
from clusterorch.diagnosis.diagnose import Onset, Weight
from clusterorch.diagnosis.dossier import Dossier, open_dossier
from clusterorch.reports.cascade import leading_variant, rows_of
from clusterorch.reports.page import page
from clusterorch.reports.ribbon import bands_of
from clusterorch.telemetry.readings import EntityRef, FileSummary
from tests.reports.made import MODEL, Coverage, Finding, Ingested, Unrecognised, change, diagnosis, modes, reading

VOID = {"meta", "br", "hr", "img", "input", "link"}
MAY_STAND = {
    *("html", "head", "meta", "title", "style", "body", "header", "section", "footer", "h1", "h2", "p", "div", "span"),
    *("table", "thead", "tbody", "tr", "th", "td", "dl", "dt", "dd", "ul", "li", "pre", "code", "strong", "details"),
    *("summary", "svg", "path", "rect", "line", "g", "text"),
}
MAY_CARRY = {
    *("class", "style", "id", "lang", "charset", "http-equiv", "content", "name", "scope", "open", "viewbox", "role"),
    *("preserveaspectratio", "aria-label", "d", "x", "y", "x1", "x2", "y1", "y2", "width", "height", "rx"),
}


class Reader(HTMLParser):
    """Checks that tags balance, and keeps tags, attributes and text."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.attributes, self.text, self.sections = [], [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag == "section":
            self.sections.append(dict(attrs)["id"])
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.text.append(data)


def read(text):
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    return reader


ATTACKS = [
    "<script>alert(1)</script>", "\"><img src=x onerror=alert(1)>", "'\" onmouseover='alert(1)", "</style><b>",
    "<svg/onload=alert(1)>", "</title></pre></section>", "&lt;script&gt;", "javascript:alert(1)", "]]><!--",
    "\x00\x1b[31m\u202e\u2028", "{{7*7}} ${7*7}", "<a href='http://evil.example/'>x</a>", "\ud800",
]  # fmt: skip


def attacked():
    """A diagnosis in which everything that comes from outside is hostile."""
    evil = "".join(ATTACKS)
    entity = EntityRef("link", evil, evil)
    lines = [
        reading(n, attack, file=f"{attack}.log", entity=entity, time=None if n % 2 else 831416606.0)
        for n, attack in enumerate(ATTACKS, start=1)
    ]
    weights = [Weight(line, change(ib_link_flap=(-1.0) ** line.line * line.line), "ib_link_flap") for line in lines]
    made = diagnosis(
        weights=weights,
        sites=[("link", evil, 0.9), ("job", evil, 0.05)],
        ingested=Ingested(
            readings=lines,
            coverage=Coverage(lines=9, recognised=1, unrecognised=8, samples=[Unrecognised(evil, 1, evil)] * 3),
            findings=[Finding(evil, 3, evil, evil)],
            files=[FileSummary(evil, 9, 1, 1, {"kernel"})],
        ),
        onset=Onset(0.3, lines[0]),
    )
    contexts = [
        Context(line.file, line.line, line.text, [(0, attack) for attack in ATTACKS], [(99, evil)]) for line in lines
    ]
    return Dossier(made, contexts=contexts)


def test_the_page_is_told_in_the_order_of_a_post_mortem():
    reader = read(page(Dossier(diagnosis())))
    order = ["modes", "facts", "ribbon", "cascade", "lines", "settle", "advice", "second", "files"]
    assert reader.sections == [name for name in order if name in reader.sections]
    assert set(order) - set(reader.sections) <= {"settle", "advice"}
    text = "".join(reader.text)
    assert "Very probably: network link goes down, or flaps" in text
    assert MODEL.sha256 in text
    assert "2026-05-06 21:03:26" in text


def test_nothing_foreign_becomes_markup():
    reader = read(page(attacked(), top=20))
    assert set(reader.tags) <= MAY_STAND
    assert {name for name, _ in reader.attributes} <= MAY_CARRY
    assert reader.tags.count("style") == 1
    text = "".join(reader.text)
    for attack in ATTACKS[:9]:
        assert attack in text  # told, as text
    assert not {c for c in text if c != "\n" and not c.isprintable()}


@pytest.mark.parametrize("made", [attacked(), Dossier(diagnosis())], ids=["hostile", "plain"])
def test_nothing_is_loaded_and_the_policy_says_so(made):
    text = page(made)
    reader = read(text)
    assert not {"script", "link", "img", "iframe", "a", "base", "object", "form"} & set(reader.tags)
    assert not {"src", "href", "srcset", "action", "xlink:href"} & {name for name, _ in reader.attributes}
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)[1]
    assert "url(" not in style
    assert "@import" not in style
    policy = dict(a for a in reader.attributes if a[0] == "content" and "default-src" in a[1])["content"]
    assert "default-src 'none'" in policy
    assert "script-src" not in policy


def test_a_page_can_be_encoded_and_is_the_same_every_time():
    text = page(attacked())
    assert text.encode("utf-8")
    assert text == page(attacked())


@pytest.mark.parametrize(
    ("made", "words", "kind"),
    [
        (diagnosis(modes(healthy=0.8)), "Probably: no failure", "good"),
        (diagnosis(modes(gpu_xid=0.3)), "Undecided: perhaps", "open"),
        (diagnosis(modes(gpu_xid=0.999)), "Almost certainly: ", "bad"),
        (diagnosis(modes(healthy=0.8), weights=[], onset=Onset(0.0, None)), "Nothing in these logs", "open"),
    ],
    ids=["healthy", "undecided", "certain", "nothing"],
)
def test_the_head_says_how_sure_it_is(made, words, kind):
    text = page(Dossier(made))
    assert f'<h1 class="{kind}">{words}' in text
    read(text)


def test_rare_modes_share_a_row():
    reader = read(page(Dossier(diagnosis(modes(ib_link_flap=0.9999)))))
    assert f"{len(MODEL.modes) + 1 - 5} others" in "".join(reader.text) or len(MODEL.modes) <= 4


def test_the_ribbon_is_full_at_every_line():
    lines = [reading(n, f"line {n}") for n in range(1, 5)]
    weights = [Weight(line, change(ib_link_flap=1.0), "ib_link_flap") for line in lines]
    made = dataclasses.replace(
        diagnosis(weights=weights),
        ribbon=[(line, modes(ib_link_flap=0.2 * n, healthy=0.9 - 0.2 * n)) for n, line in enumerate(lines, start=1)],
    )  # fmt: skip
    text = page(Dossier(made))
    svg = re.search(r'<svg class="ribbon".*?</svg>', text, re.DOTALL)[0]
    paths = re.findall(r'<path class="(\w+)" d="([^"]+)">', svg)
    assert [kind for kind, _ in paths] == list(bands_of(made).values())
    # Each band begins where the one below it ends; together they reach from bottom to top.
    numbers = [[tuple(map(float, point.split())) for point in re.split("[ML]", d[:-1]) if point] for _, d in paths]
    steps = len(made.ribbon)
    assert {y for _, y in numbers[0][2 * steps :]} == {180.0}
    assert {y for _, y in numbers[-1][: 2 * steps]} == {0.0}
    for below, above in itertools.pairwise(numbers):
        assert sorted(below[: 2 * steps]) == sorted(above[2 * steps :])
    assert svg.count("<rect") == steps
    assert svg.count('class="for"') == steps


def test_the_cascade_has_what_was_seen_and_what_was_expected():
    line = reading()
    made = diagnosis(
        weights=[Weight(line, change(ib_link_flap=7.0), "ib_link_flap")], ingested=Ingested(readings=[line])
    )
    assert leading_variant(made) == "ib_link_flap.beyond_limit"
    rows, _ = rows_of(made, "ib_link_flap.beyond_limit")
    by_name = {row.name: row for row in rows}
    assert rows[0].kind == "variant"
    assert by_name["nic_link_down"].seen
    assert by_name[by_name["nic_link_down"].parents[0]].seen
    assert any(row.kind == "signal" and not row.seen for row in rows)
    place = {row.name: i for i, row in enumerate(rows)}
    graph = made.model.graph
    for row in rows[1:]:
        assert row.parents
        assert all(place[parent] < place[row.name] and by_name[parent].rank < row.rank for parent in row.parents)
        if row.kind == "mechanism":
            assert set(row.parents) == {p for p in graph.predecessors(row.name) if p in by_name}
    svg = re.search(r'<svg class="cascade".*?</svg>', page(Dossier(made)), re.DOTALL)[0]
    assert svg.count('class="signal seen"') == sum(r.kind == "signal" and r.seen for r in rows)
    assert svg.count('class="signal unseen"') == sum(r.kind == "signal" and not r.seen for r in rows)


def test_a_healthy_job_without_a_disturbance_has_no_cascade():
    made = diagnosis(modes(healthy=0.9))
    assert leading_variant(made) is None
    assert "cascade" not in read(page(Dossier(made))).sections


def test_a_line_stands_among_its_neighbours():
    line = reading(5, "the line", file="a.log")
    made = diagnosis(weights=[Weight(line, change(ib_link_flap=7.0), "ib_link_flap")])
    text = page(Dossier(made, contexts=[Context("a.log", 5, "the line", [(4, "before it")], [(6, "after it")])]))
    block = re.search(r'<pre class="log">(.*?)</pre>', text, re.DOTALL)[1]
    assert [re.sub("<[^>]+>", "", row).split(maxsplit=1) for row in block.splitlines()] == [
        ["4", "before it"], ["5", "the line"], ["6", "after it"],
    ]  # fmt: skip
    assert '<span class="at">' in block.splitlines()[1]


def test_a_made_diagnosis_has_no_follow_up():
    dossier = open_dossier(diagnosis(), [])
    assert (dossier.offers, dossier.advice) == ([], None)


CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
@pytest.mark.parametrize("made", [attacked(), Dossier(diagnosis())], ids=["hostile", "plain"])
def test_a_browser_shows_it_without_a_complaint_or_a_request(tmp_path, made):
    (tmp_path / "page.html").write_text(page(made, top=20), encoding="utf-8")
    log = tmp_path / "net.json"
    outcome = subprocess.run(
        [
            CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync",
            f"--user-data-dir={tmp_path / 'profile'}",
            "--enable-logging=stderr", f"--log-net-log={log}", "--dump-dom", (tmp_path / "page.html").as_uri(),
        ],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert outcome.returncode == 0, outcome.stderr[-2000:]
    assert outcome.stdout.count("<section") == page(made, top=20).count("<section")
    said = [line for line in outcome.stderr.splitlines() if "CONSOLE" in line]
    assert said == []
    try:
        record = json.loads(log.read_text())
    except ValueError:
        record = json.loads(log.read_text().rstrip().rstrip(",") + "]}")
    urls = {str(event.get("params", {}).get("url", "")) for event in record["events"]}
    assert not {url for url in urls if "evil" in url}
