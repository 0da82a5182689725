"""What the child process of `seam.prompt` runs: one chat template, one chat, in jinja's sandbox."""

from __future__ import annotations

import json
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

from jinja2 import Template, nodes
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

MOST_TEXT, TEXT_PER_LETTER = 1_000_000, 10
"""Letters of one rendering, and as many more for each letter of the chat."""


def work(request: dict[str, str]) -> str:
    """The text of a chat; `request` holds "source", the template, and "names", what it may read, as JSON.

    Raises:
        ValueError: it is longer than any chat.
    """
    text = _compiled(request["source"]).render(json.loads(request["names"]))
    if len(text) > MOST_TEXT + TEXT_PER_LETTER * len(request["names"]):
        raise ValueError(f"it writes {len(text):,} letters, more than any chat needs")
    return text


class _Names(Namespace):
    """A namespace without private names."""

    def __init__(*args: Any, **names: Any) -> None:
        own, *rest = args  # so that a template may use the name `self`
        names = dict(*rest, **names)
        for name in names:
            _check_name(name)
        Namespace.__init__(own, names)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"it sets the private name {name!r}")


class _Dict:
    """`dict` as a template may call it: without the class's own attributes."""

    def __call__(self, *args: Any, **named: Any) -> dict[Any, Any]:
        return dict(*args, **named)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        """`dict.fromkeys`."""
        return dict.fromkeys(*args)


class _Generation(Extension):
    """`{% generation %}`, which marks a model's own words for training: they are rendered as they are."""

    tags = {"generation"}  # noqa: RUF012  # as jinja declares it

    def parse(self, parser: Any) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    """JSON without the escapes of jinja's own filter."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _fail(message: Any) -> NoReturn:
    raise TemplateError(str(message))


def _now(format: str) -> str:
    return datetime.now().strftime(format)


@lru_cache(maxsize=32)
def _compiled(source: str) -> Template:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.filters["tojson"] = _json
    names: dict[str, Any] = {
        "raise_exception": _fail,
        "strftime_now": _now,
        "dict": _Dict(),
        "namespace": _Names,
    }
    environment.globals.update(names)
    return environment.from_string(source)
