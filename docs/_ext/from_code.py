"""Parts of the reference that are read from the code, so that they are written down once.

Each directive makes Markdown, which is then read like the rest of its page. The build warns where a
name of `experiment.__all__` is on no page.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import inspect
import json
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

import experiment
from experiment.setup.keywords import entries
from spark_jobs.session import spark_settings

_LOG = logging.getLogger(__name__)


def table(*rows: tuple[str, ...]) -> str:
    """Return a Markdown table; the first row is its head."""
    head, *body = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    lines = [head, ["---"] * len(head), *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def keywords() -> str:
    """Return the keyword arguments that all searches share."""
    entry = entries(inspect.getdoc(experiment.Settings) or "")
    rows = [("argument", "default", "meaning")]
    for field in dataclasses.fields(experiment.Settings):
        meaning = " ".join(entry[field.name].split()).partition(": ")[2]
        rows.append((f"`{field.name}`", f"`{field.default!r}`", meaning))
    return table(*rows)


def settings_of_spark() -> str:
    """Return the settings of Spark that are ours."""
    rows = [(f"`{s.name}`", s.default, s.meaning) for s in spark_settings.ALL]
    return table(("setting", "left out", "meaning"), *rows)


def commands(parser: argparse.ArgumentParser) -> str:
    """Return what a command line takes, in a section for each of its commands where it has some."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return "\n\n".join(
                f"## {name}\n\n{_sentence(sub.description)}\n\n{_usage(sub)}"
                for name, sub in action.choices.items()
            )
    return _usage(parser)


def _usage(parser: argparse.ArgumentParser) -> str:
    shown = [
        (f"`{_called(action)}`", " ".join((action.help or "").replace("%%", "%").split()))
        for action in parser._actions
        if not isinstance(action, argparse._HelpAction)
    ]
    usage = " ".join(parser.format_usage().split()).removeprefix("usage: ")
    if len(usage) > 200:  # every option once more
        usage = f"{parser.prog} [options]"
    parts = [f"```text\n{usage}\n```"]
    if shown:
        parts.append(table(("argument", "meaning"), *shown))
    if parser.epilog:
        epilog = inspect.cleandoc(parser.epilog.replace("%(prog)s", parser.prog))
        words, example = epilog.partition("example: ")[::2]
        parts += [words, f"```console\n$ {example}\n```"] if example else [epilog]
    return "\n\n".join(parts)


def _called(action: argparse.Action) -> str:
    """Return "--grid FILE", "-v, --verbose", "run"."""
    if not action.option_strings:
        return str(action.metavar or action.dest)
    value = "" if action.nargs == 0 else f" {action.metavar or action.dest.upper()}"
    return ", ".join(action.option_strings) + value


def _sentence(text: str | None) -> str:
    return f"{text[0].upper()}{text[1:].rstrip('.')}." if text else ""


def notebook(path: Path) -> str:
    """Return the cells of a notebook, without its title."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
    return re.sub(r"\A# .*\n", "", "\n\n".join(parts))


class _FromCode(SphinxDirective):
    """Reads its page's part from the code."""

    optional_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the nodes."""
        return self.parse_text_to_nodes(self.markdown(), allow_section_headings=True)

    def markdown(self) -> str:
        """Return what is to be read."""
        raise NotImplementedError


class _Keywords(_FromCode):
    def markdown(self) -> str:
        return keywords()


class _SparkSettings(_FromCode):
    def markdown(self) -> str:
        return settings_of_spark()


class _Commands(_FromCode):
    """`{commands} module:function program`, where the function makes the program's parser."""

    final_argument_whitespace = True

    def markdown(self) -> str:
        reference, *program = self.arguments[0].split(maxsplit=1)
        module, _, function = reference.partition(":")
        return commands(getattr(importlib.import_module(module), function)(*program))


class _Notebook(_FromCode):
    """`{notebook} path`, relative to the page."""

    def markdown(self) -> str:
        relative, absolute = self.env.relfn2path(self.arguments[0])
        self.env.note_dependency(relative)
        return notebook(Path(absolute))


def _leave_out_keywords(  # noqa: PLR0917  # as Sphinx calls it
    app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]
) -> None:
    """Show the docstring of a call without the keywords that have a page of their own."""
    unwrapped = inspect.unwrap(thing) if callable(thing) else thing
    if "**settings" in entries(inspect.getdoc(unwrapped) or ""):
        lines[:] = [*(inspect.getdoc(unwrapped) or "").splitlines(), ""]


def _check_complete(app: Sphinx, env: BuildEnvironment) -> None:
    known = env.domains["py"].data["objects"]
    for name in experiment.__all__:
        if not any(o == f"experiment.{name}" for o in known):
            _LOG.warning("experiment.%s is on no page of the reference", name)


def setup(app: Sphinx) -> dict[str, Any]:
    """Add the directives."""
    for name, directive in {
        "keywords": _Keywords,
        "spark-settings": _SparkSettings,
        "commands": _Commands,
        "notebook": _Notebook,
    }.items():
        app.add_directive(name, directive)
    app.connect("autodoc-process-docstring", _leave_out_keywords, priority=400)  # before napoleon
    app.connect("env-check-consistency", _check_complete)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
