#!/usr/bin/env python3
"""pictures.py DIR NAME...: figures of the page that `srd figures --out DIR` wrote, as docs/pictures/NAME.svg.

Each is the page's figure with its legend below, on white, so that it reads on pages of any colour.
"""
import pathlib
import re
import sys

LINE = 20  # of the legend, pixels
LETTER = 7.2  # width of one at 13 pixels, about


def standalone(page: str, name: str) -> str:
    """The figure of that name, as a file of its own."""
    figure = re.search(rf'<figure id="{re.escape(name)}">.*?</figure>', page, re.DOTALL)
    if not figure:
        sys.exit(f"pictures: error: the page has no figure {name}")
    figure = figure.group(0)
    plot = re.search(r'<svg viewBox="0 0 (\d+) (\d+)"([^>]*)>(.*?)</svg>', figure, re.DOTALL)
    width, height = int(plot.group(1)) + 10, int(plot.group(2))  # the last value of an axis is wider than the axis
    legend, x, y = [], 12, height + 14
    entries = re.findall(r"<span><svg[^>]*>(.*?)</svg>\s*(.*?)</span>", figure, re.DOTALL)
    for mark, label in entries:
        label = label.strip()
        wide = 30 + len(label) * LETTER
        if x + wide > width and x > 12:
            x, y = 12, y + LINE
        legend.append(f'<g transform="translate({x:.0f} {y - 5})">{mark}<text x="28" y="9.5">{label}</text></g>')
        x += wide + 14
    total = y + 16 if entries else height
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {total}" width="{width}" height="{total}"{plot.group(3)} color="#222">\n'
        f'<rect width="{width}" height="{total}" fill="#fff"/>{plot.group(4)}' + "\n".join(legend) + "\n</svg>\n"
    )


def main() -> int:
    if len(sys.argv) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    page = (pathlib.Path(sys.argv[1]) / "index.html").read_text()
    target = pathlib.Path(__file__).resolve().parents[1] / "docs" / "pictures"
    target.mkdir(exist_ok=True)
    for name in sys.argv[2:]:
        (target / f"{name}.svg").write_text(standalone(page, name))
    print(f"pictures: {len(sys.argv) - 2} in docs/pictures")
    return 0


sys.exit(main())
