"""The demo's result as one HTML page that needs nothing else: the table, and figures drawn as SVG."""

from html import escape
from math import floor, log10
from pathlib import Path

from chart import Chart
from results import Side, Steady, table

# Okabe and Ito's palette: told apart by people of any colour vision.
SIDE_COLOURS = ["#0072B2", "#009E73", "#D55E00"]
SPINE_COLOURS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000"]

BIN_MS = 20.0
"""As steady.c has it."""

STYLE = """
body { font: 16px/1.5 sans-serif; color: #222; max-width: 900px; margin: 2em auto; padding: 0 1em; }
table { border-collapse: collapse; font-size: 14px; } th, td { padding: .25em .8em; border-bottom: 1px solid #ddd; text-align: right; }
th:first-child, td:first-child { text-align: left; white-space: pre; } figure { margin: 2em 0; } figcaption { font-size: 14px; color: #555; }
svg { width: 100%; height: auto; }
"""


def write(path: Path, sides: list[Side], setting: str, on_simulated: str) -> None:
    figures = "\n".join(
        f"<figure>{chart.svg()}<figcaption>{escape(caption)}</figcaption></figure>"
        for chart, caption in _figures(sides)
    )
    head = "".join(f"<th>{escape(side.carrier.title)}</th>" for side in sides)
    body = "\n".join(
        f"<tr><td>{escape(name)}</td>{''.join(f'<td>{escape(value)}</td>' for value in values)}</tr>"
        for name, values in table(sides)
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>OpenSRD demonstration</title><style>{STYLE}</style></head><body>
<h1>OpenSRD demonstration</h1>
<p>{escape(setting)}</p>
<table><thead><tr><th></th>{head}</tr></thead><tbody>
{body}
</tbody></table>
{figures}
<h2>On simulated hosts</h2>
<pre>{escape(on_simulated)}</pre>
<p>What each rank did when, healthy: <a href="simulated/benchmarks-healthy/index.html">benchmarks</a>, <a href="simulated/healthy/index.html">LAMMPS</a>;
one uplink of sixteen at a tenth of its rate: <a href="simulated/benchmarks-limping/index.html">benchmarks</a>, <a href="simulated/limping/index.html">LAMMPS</a>.</p>
</body></html>
""")


def _figures(sides: list[Side]) -> list[tuple[Chart, str]]:
    figures = []
    if all(side.melt_with_fault and side.melt_with_fault.happened.fault for side in sides):
        figures.append(
            (
                _progress(sides),
                "Time steps that LAMMPS has finished. Level: no rank computes, all wait for a message.",
            )
        )
    if all(side.steady and side.steady.happened.fault for side in sides):
        figures.append(
            (
                _iterations(sides),
                "Per 20 ms: the longest iteration that ended, or, while none ends, how long the current one has lasted.",
            )
        )
    for side in sides:
        if side.melt_with_fault and side.melt_with_fault.happened.fault:
            figures.append(
                (_spine_rates(side), "What each spine received during the LAMMPS run, shown every 0.1 s.")
            )
    return figures


def _since_fault(happened) -> float:
    return happened.fault[0]


def _fault_span(chart: Chart, sides: list[Side], pick) -> None:
    begin, end = pick(sides[0]).fault
    chart.span(0, end - begin, "spine silent")


def _progress(sides: list[Side]) -> Chart:
    curves = [
        [
            (at - _since_fault(side.melt_with_fault.happened), step)
            for at, step in side.melt_with_fault.progress
        ]
        for side in sides
    ]
    first, last = min(curve[0][0] for curve in curves), max(curve[-1][0] for curve in curves)
    most = max(step for curve in curves for _, step in curve)
    chart = Chart(
        "LAMMPS on 4 hosts while one spine falls silent",
        "seconds since the spine fell silent",
        "time step",
        (first, last),
        (0, most),
    )
    _fault_span(chart, sides, lambda side: side.melt_with_fault.happened)
    for side, curve, colour in zip(sides, curves, SIDE_COLOURS):
        chart.line(curve, colour, side.carrier.title)
    return chart


def _steady_curve(steady: Steady) -> list[tuple[float, float]]:
    """Per 20 ms: the longest iteration that ended in it, in milliseconds; where none ended, the age of the current one."""
    offset = steady.began - _since_fault(steady.happened)
    curve, age_ms = [], 0.0
    for at, count, longest_us in steady.bins:
        age_ms = 0.0 if count else age_ms + BIN_MS
        curve.append((at + offset, longest_us / 1000 if count else age_ms))
    return curve


def _iterations(sides: list[Side]) -> Chart:
    curves = [_steady_curve(side.steady) for side in sides]
    first, last = min(curve[0][0] for curve in curves), max(curve[-1][0] for curve in curves)
    low, high = 10.0, 0.1
    for curve in curves:
        low, high = min(low, *(y for _, y in curve)), max(high, *(y for _, y in curve))
    chart = Chart(
        "Steady exchange between 4 hosts while one spine falls silent",
        "seconds since the spine fell silent",
        "longest iteration (ms)",
        (first, last),
        (10 ** _floor_decade(low), 10 ** (_floor_decade(high) + 1)),
        logarithmic=True,
    )
    _fault_span(chart, sides, lambda side: side.steady.happened)
    for side, curve, colour in zip(sides, curves, SIDE_COLOURS):
        chart.line(curve, colour, side.carrier.title)
    return chart


def _floor_decade(value: float) -> int:
    return floor(log10(value))


def _spine_rates(side: Side) -> Chart:
    happened = side.melt_with_fault.happened
    curves = [
        [(at - _since_fault(happened), rate) for at, rate in happened.spines.rates_mbit(spine)]
        for spine in range(happened.spines.spines)
    ]
    first, last = curves[0][0][0], curves[0][-1][0]
    most = max(rate for curve in curves for _, rate in curve)
    chart = Chart(
        f"Traffic through each spine: {side.carrier.title}",
        "seconds since the spine fell silent",
        "received (Mbit/s)",
        (first, last),
        (0, most * 1.05 + 1),
    )
    chart.span(0, happened.fault[1] - happened.fault[0], f"spine {happened.failed_spine} silent")
    for spine, (curve, colour) in enumerate(zip(curves, SPINE_COLOURS)):
        chart.line(
            curve,
            colour,
            f"spine {spine}" + (" (fails)" if spine == happened.failed_spine else ""),
            dashed=spine == happened.failed_spine,
        )
    return chart
