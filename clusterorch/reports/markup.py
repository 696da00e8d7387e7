"""Here lives HTML made by hand: the few shapes a page is put together from, and the escaping of all foreign text."""

from __future__ import annotations

from html import escape

from clusterorch.reports.wording import printable


def safe(text: object) -> str:
    r"""Foreign text as HTML: control characters spelt out, everything that could be markup escaped.

    >>> safe('<b onload="x">\x1b')
    '&lt;b onload=&quot;x&quot;&gt;\\x1b'
    """
    return escape(printable(str(text)), quote=True)


def section(heading: str, *parts: str, key: str) -> str:
    """A section of the page; empty if it has nothing to say."""
    inside = "\n".join(part for part in parts if part)
    return f'<section id="{key}">\n<h2>{safe(heading)}</h2>\n{inside}\n</section>' if inside else ""


def paragraph(*inner: str, kind: str = "") -> str:
    """A paragraph of pieces that are HTML already."""
    return f"<p{_class(kind)}>{''.join(inner)}</p>"


def table(head: list[str], rows: list[list[str]], *, kind: str = "") -> str:
    """A table; cells are HTML already.  Narrow screens scroll it sideways."""
    if not rows:
        return ""
    top = "".join(f'<th scope="col">{safe(cell)}</th>' for cell in head)
    body = "\n".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    inside = f"<thead><tr>{top}</tr></thead>\n<tbody>\n{body}\n</tbody>"
    return f'<div class="wide"><table{_class(kind)}>\n{inside}</table></div>'


def facts(rows: list[tuple[str, str]]) -> str:
    """A list of terms with what holds of them; the latter is HTML already."""
    inside = "\n".join(f"<dt>{safe(term)}</dt><dd>{said}</dd>" for term, said in rows if said)
    return f"<dl>\n{inside}\n</dl>" if inside else ""


def folded(summary: str, inner: str, *, opened: bool = False) -> str:
    """Something that is shown when asked for."""
    return f"<details{' open' if opened else ''}><summary>{safe(summary)}</summary>\n{inner}\n</details>"


def bar(p: float, kind: str = "") -> str:
    """A bar as long as a probability."""
    width = 100.0 * min(max(p, 0.0), 1.0)
    return f'<span class="bar"><span class="{kind or "fill"}" style="width:{width:.2f}%"></span></span>'


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""
