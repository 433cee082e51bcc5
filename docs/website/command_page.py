"""The page of the command line, with an anchor for each verb and a table of its options, read from the commands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

import click
from docs.website.markdown import Heading, headings

from leftfold.cli.main import cli

PAGE = "reference/cli.md"
# Described once for all verbs, in the first section of the page.
SHARED = ("--json", "--profile", "--help")


@dataclass(frozen=True)
class Verb:
    """One command: its words, as in `dead redrive`, and its options."""

    words: tuple[str, ...]
    command: click.Command

    @property
    def anchor(self) -> str:
        return "-".join(self.words)

    def options(self) -> dict[str, click.Option]:
        """Options by their long names."""
        options = [p for p in self.command.params if isinstance(p, click.Option) and not p.hidden]
        return {long: o for o in options for long in (*o.opts, *o.secondary_opts) if long.startswith("--")}

    def own_options(self) -> dict[str, click.Option]:
        return {long: option for long, option in self.options().items() if long not in SHARED}

    def anchor_of(self, option: str) -> str:
        return f"{self.anchor}{option}"


def verbs(group: click.Group = cli, before: tuple[str, ...] = ()) -> Iterator[Verb]:
    """Yield every command that does something, those of groups by all their words."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from verbs(command, (*before, name))
        else:
            yield Verb((*before, name), command)


@dataclass(frozen=True)
class Section:
    """One heading of level 3 in the page, the verbs that it is about, the text below it, and that of its chapter."""

    heading: Heading
    usages: tuple[str, ...]
    verbs: tuple[Verb, ...]
    body: str
    introduction: str


def sections(page: str) -> list[Section]:
    """The sections of docs/reference/cli.md that are about verbs."""
    every, known = headings(page), {verb.words: verb for verb in verbs()}
    found, introduction = [], ""
    for heading, following in zip(every, [*every[1:], None], strict=True):
        body = page[heading.end : following.start if following else len(page)]
        if heading.level == 2:
            introduction = body
        elif heading.level == 3:
            usages = tuple(re.findall(r"`([^`]+)`", heading.text))
            about = [known[w] for usage in usages if (w := _words(usage, known)) is not None]
            found.append(Section(heading, usages, tuple(dict.fromkeys(about)), body, introduction))
    return found


def _words(usage: str, known: dict[tuple[str, ...], Verb]) -> tuple[str, ...] | None:
    words = tuple(usage.split())
    return next((words[:n] for n in (1, 2) if words[:n] in known), None)


def made(page: str) -> tuple[str, dict[str, str]]:
    """The page for the site, and the new anchor of each heading."""
    anchors: dict[str, str] = {}
    parts, position = [], 0
    found = sections(page)
    last = {verb: section for section in found for verb in section.verbs}
    for section in found:
        title, anchor = _title(section, anchors)
        anchors[section.heading.anchor] = anchor
        usage = "\n".join(f"leftfold {usage}" for usage in _whole(section))
        begun = "".join(f'<span id="{v.anchor}"></span>' for v in section.verbs if v.anchor not in anchors.values())
        ended = [_table(verb) for verb in section.verbs if last[verb] is section and verb.own_options()]
        parts += [
            page[position : section.heading.start],
            f'### {title} {{: #{anchor} }}\n{begun}\n<pre class="usage"><code>{escape(usage)}</code></pre>\n',
            section.body.rstrip("\n") + "\n\n" + "".join(ended),
        ]
        position = section.heading.end + len(section.body)
    return "".join([*parts, page[position:]]), anchors


def _title(section: Section, taken: dict[str, str]) -> tuple[str, str]:
    """A short heading, as in `replay --verify`: the verbs, and the first option where the verb had one before."""
    title = " · ".join(f"`{' '.join(verb.words)}`" for verb in section.verbs)
    anchor = section.verbs[0].anchor
    if anchor in taken.values():
        option = re.search(r"--[a-z-]+", section.usages[0])
        assert option is not None, f"{section.heading.text} does not differ from an earlier section"
        title, anchor = f"`{' '.join(section.verbs[0].words)} {option[0]}`", f"{anchor}-{option[0].strip('-')}"
    return title, anchor


def _whole(section: Section) -> list[str]:
    """Usages with their verb, where the heading leaves it out: `--all` after `dead drop NAME POSITION`."""
    lines: list[str] = []
    for usage in section.usages:
        if usage.startswith("["):
            lines[-1] += f" {usage}"
        elif usage.startswith("-"):
            lines.append(re.split(r" (?=[A-Z]+…|POSITION|--|\[)", lines[0])[0] + f" {usage}")
        else:
            lines.append(usage)
    return lines


def _table(verb: Verb) -> str:
    rows = []
    for names in _together(verb).values():
        spans = "".join(f'<span id="{verb.anchor_of(name)}"></span>' for name in names)
        option = verb.own_options()[names[0]]
        value = "" if option.is_flag or option.count else f" {option.make_metavar(click.Context(verb.command))}"
        shown = ", ".join(f"`{name}{value}`" for name in names).replace("|", r"\|")
        rows.append(f"| {spans}{shown} | {_help(option)} |")
    return f"| option of `{' '.join(verb.words)}` | what |\n|---|---|\n" + "\n".join(rows) + "\n\n"


def _together(verb: Verb) -> dict[click.Option, list[str]]:
    """The long names of each option: `--postgres` and `--no-postgres` are one."""
    names: dict[click.Option, list[str]] = {}
    for name, option in verb.own_options().items():
        names.setdefault(option, []).append(name)
    return names


def _help(option: click.Option) -> str:
    return re.sub(r"([|*_\[\]])", r"\\\1", option.help or "").replace("<", "&lt;")
