"""Here lives how a page looks: in light and dark, on a telephone and on paper.  Everything is in this one sheet."""

# Bands b0..b8 begin with the colours of Okabe and Ito (2008), which colour-blind readers tell apart.
STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1b1f24; --dim: #59636e; --rule: #d7dce1; --soft: #f3f5f7;
  --bad: #b3261e; --good: #1a7f37; --open: #8a5a00; --fill: #0072b2; --mark: #fff4ce;
  --b0: #0072b2; --b1: #d55e00; --b2: #009e73; --b3: #cc79a7; --b4: #e69f00; --b5: #56b4e9; --b6: #7a5195;
  --b7: #8c6d31; --b8: #b22222; --bx: #9aa3ad; --bh: #dfe9df; }
@media (prefers-color-scheme: dark) { :root { --paper: #14171a; --ink: #e6e9ec; --dim: #9aa4ae; --rule: #343a41;
  --soft: #1d2125; --bad: #ff8a80; --good: #6fd08c; --open: #f0c060; --fill: #4aa8e0; --mark: #3a3215;
  --b0: #4aa8e0; --b1: #f08a45; --b2: #35c79b; --b3: #dc9cc0; --b4: #f0b840; --b5: #8fd0f5; --b6: #a58cc4;
  --b7: #b89a5e; --b8: #e06666; --bx: #6b747e; --bh: #2b3a30; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 60rem; padding: 1.2rem 1rem 3rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.55rem; line-height: 1.25; margin: .2rem 0 .4rem; }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; padding-bottom: .2rem; border-bottom: 1px solid var(--rule); }
p { margin: .4rem 0; max-width: 46rem; }
.dim, figcaption { color: var(--dim); font-size: .9rem; }
.bad { color: var(--bad); } .good { color: var(--good); } .open { color: var(--open); }
dl { display: grid; grid-template-columns: 8rem 1fr; gap: .3rem 1rem; margin: .6rem 0; }
dt { color: var(--dim); } dd { margin: 0; }
code, pre { font: .84rem/1.5 ui-monospace, SFMono-Regular, Menlo, "Liberation Mono", monospace; }
pre { margin: .3rem 0; padding: .5rem .7rem; background: var(--soft); border-radius: 6px; overflow-x: auto; }
.wide { overflow-x: auto; margin: .5rem 0; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; }
th, td { text-align: left; vertical-align: top; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid var(--rule); }
td, th { overflow-wrap: break-word; }
th { color: var(--dim); font-weight: 500; } tr:last-child td { border-bottom: 0; }
.bar { display: inline-block; width: 100%; min-width: 3.5rem; height: .7rem; background: var(--soft); overflow: hidden;
  border-radius: 3px; } .bar > span { display: block; height: 100%; } .fill { background: var(--fill); }
.calm { background: var(--good); } .num { white-space: nowrap; font-variant-numeric: tabular-nums; }
.modes td:nth-child(2) { width: 34%; } .modes td:nth-child(3) { text-align: right; }
.line { margin: .9rem 0; } .line > p { margin: 0; }
.log { white-space: pre; } .log .at { background: var(--mark); display: inline-block; min-width: 100%; }
.log .no { color: var(--dim); user-select: none; }
.weight { display: inline-block; min-width: 4.2rem; font-weight: 600; font-variant-numeric: tabular-nums; }
details { margin: .5rem 0; } summary { cursor: pointer; color: var(--dim); }
.key { list-style: none; display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; margin: .5rem 0; padding: 0;
  font-size: .9rem; }
.swatch { display: inline-block; width: .8rem; height: .8rem; border-radius: 2px; margin-right: .35rem; }
.ribbon { display: block; width: 100%; height: 12rem; background: var(--soft); border-radius: 4px; }
.ends { display: flex; justify-content: space-between; gap: 1rem; color: var(--dim); font-size: .85rem; }
.ends span:last-child { text-align: right; }
.touch { fill: transparent; } .touch:hover { fill: var(--ink); fill-opacity: .12; }
.ribbon line { stroke-width: 2; vector-effect: non-scaling-stroke; } .ribbon .onset { stroke: var(--ink);
  stroke-dasharray: 5 4; } .ribbon .for { stroke: var(--bad); } .ribbon .against { stroke: var(--good); }
span.for { color: var(--bad); font-weight: 700; } span.against { color: var(--good); font-weight: 700; }
.cascade { font: 13px system-ui, "Segoe UI", Roboto, "Liberation Sans", sans-serif; display: block; }
.cascade text { fill: var(--ink); } .cascade rect { fill: var(--paper); stroke: var(--dim); }
.cascade .variant rect { fill: var(--ink); stroke: var(--ink); } .cascade .variant text { fill: var(--paper);
  font-weight: 600; }
.cascade .mechanism.seen rect { stroke: var(--fill); stroke-width: 2; }
.cascade .signal.seen rect { fill: var(--mark); stroke: var(--open); }
.cascade .signal.unseen rect { stroke-dasharray: 4 3; } .cascade .unseen text { fill: var(--dim); }
.cascade path { fill: none; stroke: var(--dim); } .cascade path.unseen { stroke-dasharray: 4 3; opacity: .6; }
footer { margin-top: 2.5rem; padding-top: .6rem; border-top: 1px solid var(--rule); color: var(--dim);
  font-size: .85rem; }
.b0 { fill: var(--b0); background: var(--b0); } .b1 { fill: var(--b1); background: var(--b1); }
.b2 { fill: var(--b2); background: var(--b2); } .b3 { fill: var(--b3); background: var(--b3); }
.b4 { fill: var(--b4); background: var(--b4); } .b5 { fill: var(--b5); background: var(--b5); }
.b6 { fill: var(--b6); background: var(--b6); } .b7 { fill: var(--b7); background: var(--b7); }
.b8 { fill: var(--b8); background: var(--b8); } .bx { fill: var(--bx); background: var(--bx); }
.bh { fill: var(--bh); background: var(--bh); }
@media (max-width: 34rem) { body { padding: .8rem .7rem 2rem; font-size: 15px; } h1 { font-size: 1.3rem; }
  dl { grid-template-columns: 1fr; gap: 0 0; } dd { margin-bottom: .5rem; } .ribbon { height: 9rem; }
  table { min-width: 27rem; } .modes { min-width: 0; } .modes thead { display: none; }
  .modes tr { display: grid; grid-template-columns: 1fr auto; border-bottom: 1px solid var(--rule); padding: .3rem 0; }
  .modes td { border: 0; padding: 0; } .modes td:nth-child(3) { grid-row: 1; grid-column: 2; }
  .modes td:nth-child(2) { grid-column: 1 / 3; width: auto; line-height: 1; }
  .modes td:nth-child(4) { grid-column: 1 / 3; color: var(--dim); font-size: .9rem; } }
@media print { body { max-width: none; padding: 0; font-size: 10.5pt; } .log, pre { white-space: pre-wrap; }
  section, .line { break-inside: avoid; } .wide { overflow: visible; } .cascade { max-width: 100%; height: auto; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  details::details-content { content-visibility: visible; block-size: auto; } }
"""
