"""The child process of `seam.prompt`: renders one chat template for one chat in jinja's sandbox."""

from __future__ import annotations

import json
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

from jinja2 import Template, nodes
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_TEXT, TEXT_PER_LETTER = 1_000_000, 10  # letters of one rendering, and more for each letter of the chat


def render_chat(request: dict[str, str]) -> str:
    """Return the text of a chat from a `request` of "source", the template, and "names", its variables as
    JSON.

    A ValueError where it is longer than any chat.
    """
    text = _compiled(request["source"]).render(json.loads(request["names"]))
    if len(text) > MAX_TEXT + TEXT_PER_LETTER * len(request["names"]):
        raise ValueError(f"it writes {len(text):,} letters, more than any chat needs")
    return text


class _Generation(Extension):
    """`{% generation %}`, which marks a model's own words for training: they are rendered as they are."""

    tags = {"generation"}  # noqa: RUF012  # as jinja declares it

    def parse(self, parser: Any) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _json(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
    """JSON without the escapes of jinja's own filter."""
    return json.dumps(value, ensure_ascii=ensure_ascii, **options)


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
    names: dict[str, Any] = {"raise_exception": _fail, "strftime_now": _now}
    environment.globals.update(names)
    return environment.from_string(source)
