"""Pictures of a terminal: `python -m docs.website.pictures` draws what a command of the tutorial printed, as SVG.

A block of the tutorial with the note `picture: NAME` is in docs/images/terminal/NAME.txt, as a real run has printed it;
a line `…` is for lines that the block leaves out. A picture needs no font of another host, is light or dark as the
reader's system is, and its text can be selected. It colors marks, such as ✓, which a terminal does not.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path

DIRECTORY = Path(__file__).parents[1] / "images" / "terminal"
COLUMNS = 116  # a longer line is wrapped, as a terminal does it
_WIDTH, _HEIGHT, _EDGE, _BAR = 8.4, 20, 18, 34  # px: of a character and a line; around the text, and above it

# The classes of parts of a line. The first pattern that fits a line decides; each of its groups is a class.
_RULES = [
    re.compile(r"^(?P<quiet>\$) (?P<strong>.*)$"),
    re.compile(r"^next: (?P<strong>.*)$"),
    re.compile(r"^ +(?P<strong>(?:feature|column|tile|event)  .*)$"),  # the head of a table
    re.compile(r"^ +(?P<good>\+) .*$"),
    re.compile(r"^ +(?P<warn>~) .*$"),
    re.compile(r"^(?P<good>✓) .*$"),
    re.compile(r"^.* (?P<good>✓)(?: .*)?$"),
    re.compile(r"^.*(?P<bad>✗).*$"),
    re.compile(r"^.*  (?P<warn>late)  .*$"),
    re.compile(r"^(?P<quiet>…)$"),
]

_SVG = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" \
aria-labelledby="title desc">
  <title id="title">{title}</title>
  <desc id="desc">{text}</desc>
  <style>
    text {{ font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #24292f }}
    text {{ white-space: pre }} .strong {{ font-weight: 600 }} .quiet {{ fill: #57606a }}
    .good {{ fill: #1a7f37 }} .warn {{ fill: #9a6700 }} .bad {{ fill: #cf222e }}
    .page {{ fill: #f6f8fa; stroke: #d0d7de }} .bar {{ stroke: #d0d7de }} .dot {{ fill: #d0d7de }}
    @media (prefers-color-scheme: dark) {{
      text {{ fill: #e6edf3 }} .quiet {{ fill: #9198a1 }} .good {{ fill: #3fb950 }} .warn {{ fill: #d29922 }}
      .bad {{ fill: #f85149 }} .page {{ fill: #0d1117; stroke: #3d444d }} .bar {{ stroke: #3d444d }}
      .dot {{ fill: #3d444d }}
    }}
  </style>
  <rect class="page" x="0.5" y="0.5" width="{inner_width}" height="{inner_height}" rx="8"/>
  <path class="bar" d="M1 {bar}.5H{inner_width}"/>
  <circle class="dot" cx="20" cy="17" r="5"/><circle class="dot" cx="38" cy="17" r="5"/>\
<circle class="dot" cx="56" cy="17" r="5"/>
{lines}
</svg>
"""


def drawn(text: str) -> str:
    """The picture of what a terminal shows. Its title is the first line, which is the command."""
    lines = list(_wrapped(text))
    width = round(max(map(len, lines)) * _WIDTH) + 2 * _EDGE
    height = len(lines) * _HEIGHT + _BAR + 2 * _EDGE
    return _SVG.format(
        width=width,
        height=height,
        inner_width=width - 1,
        inner_height=height - 1,
        bar=_BAR,
        title=escape(lines[0].removeprefix("$ ")),
        text=escape(text),
        lines="\n".join(_line(line, number) for number, line in enumerate(lines) if line.strip()),
    )


def _wrapped(text: str) -> Iterator[str]:
    for line in text.splitlines():
        yield from (line[at : at + COLUMNS] for at in range(0, max(len(line), 1), COLUMNS))


def _line(line: str, number: int) -> str:
    shown = line.strip()
    x = _EDGE + (len(line) - len(line.lstrip())) * _WIDTH
    y = _BAR + _EDGE + number * _HEIGHT + 14
    # The length keeps columns under each other, whatever font there is.
    return f'  <text x="{x:.1f}" y="{y}" textLength="{len(shown) * _WIDTH:.1f}">{_parts(line).strip()}</text>'


def _parts(line: str) -> str:
    """The line, with its marked parts in spans."""
    found = next((m for rule in _RULES if (m := rule.match(line))), None)
    if found is None:
        return escape(line, quote=False)
    made, end = "", 0
    for name in found.re.groupindex:
        start, stop = found.span(name)
        made += f'{escape(line[end:start], quote=False)}<tspan class="{name}">'
        made += f"{escape(line[start:stop], quote=False)}</tspan>"
        end = stop
    return made + escape(line[end:], quote=False)


def text_of(name: str) -> Path:
    return DIRECTORY / f"{name}.txt"


def main() -> int:
    for path in sorted(DIRECTORY.glob("*.txt")):
        path.with_suffix(".svg").write_text(drawn(path.read_text(encoding="utf-8")), encoding="utf-8")
        print(path.with_suffix(".svg").relative_to(DIRECTORY.parents[2]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
