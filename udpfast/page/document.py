"""A page as one HTML file that fetches nothing and follows the reader's light or dark mode."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

__all__ = ["cells_of", "document"]

STYLE = """
:root { --ink: #1f2328; --muted: #6e7781; --grid: #d8dee4; --page: #fff; --quiet: #f6f8fa;
  --good: #1a7f37; --bad: #cf222e; color-scheme: light dark;
  --bk-axis-label-text-color: var(--ink); --bk-major-label-text-color: var(--ink);
  --bk-label-text-color: var(--ink); --bk-axis-line-color: var(--muted);
  --bk-major-tick-line-color: var(--muted); --bk-grid-line-color: var(--grid);
  --bk-background-fill-color: var(--page); --bk-border-fill-color: var(--page); }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --muted: #8d96a0; --grid: #30363d;
  --page: #0d1117; --quiet: #161b22; --good: #3fb950; --bad: #f85149; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page);
  max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin: 0 } h2 { margin: 3rem 0 .2rem; font-size: 1.25rem }
h1, h3, p, li, figcaption { overflow-wrap: anywhere }
h3 { margin: 1.4rem 0 .3rem; font-size: .95rem; font-weight: 600 }
p { margin: .3rem 0 } .muted, figcaption, caption { color: var(--muted) }
pre { background: var(--quiet); padding: .8rem 1rem; overflow-x: auto; font-size: 12.5px;
  line-height: 1.35; border-radius: 6px }
.wide { overflow-x: auto } table { border-collapse: collapse; font-size: 13px; width: 100% }
th, td { text-align: left; padding: .25rem .7rem .25rem 0; border-bottom: 1px solid var(--grid);
  vertical-align: top } th { font-weight: 600; white-space: nowrap }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
tr.own td:first-child { font-weight: 600 } .good { color: var(--good) } .bad { color: var(--bad) }
figure { margin: 1.2rem 0 } figcaption { font-size: 13px } .small { font-size: 12.5px }
td.w { white-space: nowrap } svg { width: 100%; max-width: 46rem }
.panels { display: grid; gap: .5rem 2rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 28rem), 1fr)) }
.panels > div { min-width: 0 }
.answers { padding-left: 1.1rem; margin: 1rem 0 } .answers li { margin: .35rem 0 }
.answers li.bad::marker, .answers li.good::marker { content: "\\25CF  " }
nav { margin: 1.2rem 0 } nav a { color: inherit; margin-right: 1rem; white-space: nowrap }
summary { cursor: pointer; color: var(--muted) }
@media (max-width: 640px) {
  table.cards thead { display: none } table.cards tr { display: block; padding: .4rem 0;
  border-bottom: 1px solid var(--grid) } table.cards td { display: flex; white-space: normal;
  justify-content: space-between; border: 0; padding: .05rem 0; text-align: right }
  table.cards td::before { content: attr(data-title); color: var(--muted); padding-right: 1rem }
  table.cards td:empty { display: none } }
svg text { font-family: system-ui, sans-serif !important } details { margin: .6rem 0 }
"""


#: A page may run the scripts embedded in it and must fetch nothing.
POLICY = (
    "default-src 'none'; img-src data:; font-src data:; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline' 'unsafe-eval'"
)


def document(title: str, body: str) -> str:
    """Return the whole page around a body."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style></head>\n<body>\n{body}\n"
        "</body></html>\n"
    )


def cells_of(tag: str, cells: Sequence[str], kinds: Sequence[str], own: str = "") -> str:
    """Return one line of a table."""
    inner = "".join(
        f'<{tag} class="{kind}">{cell}</{tag}>' if kind else f"<{tag}>{cell}</{tag}>"
        for cell, kind in zip(cells, kinds, strict=True)
    )
    return f'<tr class="{own}">{inner}</tr>' if own else f"<tr>{inner}</tr>"
