"""Chat templates of a checkpoint, rendered within bounds: they are programs, and a checkpoint is untrusted.

    render(processor, turns) -> the text of processor.apply_chat_template(turns, add_generation_prompt=True)

transformers renders templates in jinja's sandbox, which keeps them from files and code, but not from looping
for ever or from doubling a text forty times. Here they run in the same sandbox, and every pass of a loop,
every call, and every letter and item that is made, compared or written counts against `MOST_WORK`. What could
make much in one step is left out: powers, texts times numbers, format strings, filters with widths.

A processor with an `apply_chat_template` of its own is the user's code, and is called.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime
from functools import lru_cache, wraps
from itertools import islice
from typing import Any, NoReturn

from jinja2 import Template, nodes, pass_context
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.runtime import LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer
from transformers import ProcessorMixin

from arr_coc.core.saved import reading

MOST_LETTERS = 100_000
"""Of a template; those of the families supported have up to about ten thousand."""
MOST_WORK, WORK_PER_LETTER = 1_000_000, 100
"""Passes, calls, letters and items of one rendering, and as many more for each letter of the chat."""
MOST_NUMBER, MOST_WIDTH = 2**63, 10_000
"""The largest result of arithmetic, and the largest number that a filter is called with."""
FILTERS = (
    *("abs", "capitalize", "count", "d", "default", "dictsort", "e", "escape", "first", "float", "groupby"),
    *("int", "items", "join", "last", "length", "list", "lower", "map", "max", "min", "reject", "rejectattr"),
    *("replace", "reverse", "round", "safe", "select", "selectattr", "sort", "string", "sum", "title"),
    *("tojson", "trim", "unique", "upper"),
)
METHODS = (
    *(
        "capitalize",
        "count",
        "endswith",
        "find",
        "get",
        "index",
        "isdigit",
        "isspace",
        "items",
        "join",
        "keys",
    ),
    *("lower", "lstrip", "removeprefix", "removesuffix", "replace", "rfind", "rsplit", "rstrip"),
    *("split", "splitlines", "startswith", "strip", "title", "upper", "values"),
)
"""Of texts and dictionaries."""
EACH, USED = "each item", "used value"
"""Filters that bound what goes through them; no template can write their names."""

_work: ContextVar[list[int]] = ContextVar("work")
"""The work of the rendering at hand, in a list of one number."""


def render(processor: Any, turns: Sequence[Mapping[str, Any]], **options: Any) -> str:
    """The text of a chat, with the beginning of the model's answer.

    Args:
        processor: has a chat template.
        turns: messages, each with "role" and "content".
        options: names that the template may read.

    Raises:
        ValueError: the template is none, fails, or does more than any chat needs.
    """
    if getattr(type(processor), "apply_chat_template", None) is not ProcessorMixin.apply_chat_template:
        return processor.apply_chat_template(turns, add_generation_prompt=True, tokenize=False, **options)
    with reading("the chat template can't be rendered", "load the model with another chat_template.jinja"):
        source = processor.chat_template
        source = source["default"] if isinstance(source, dict) else source
        if not isinstance(source, str) or len(source) > MOST_LETTERS:
            raise ValueError(f"it is no text of at most {MOST_LETTERS} letters")
        before = _work.set([-WORK_PER_LETTER * len(str(turns))])
        try:
            return _compiled(source).render(
                messages=turns,
                tools=None,
                documents=None,
                add_generation_prompt=True,
                **processor.tokenizer.special_tokens_map,
                **options,
            )
        finally:
            _work.reset(before)


def check_template(processor: Any) -> None:
    """Render a processor's chat template once, if it has one, for a question about an image.

    Raises:
        ValueError: as in `render`.
    """
    if getattr(processor, "chat_template", None) is not None:
        content = [{"type": "image"}, {"type": "text", "text": "What?"}]
        render(processor, [{"role": "user", "content": content}])


# ---- the environment ----------------------------------------------------------------------------------


def _count(steps: int) -> None:
    """Add to the work of this rendering.

    Raises:
        SecurityError: it is too much.
    """
    work = _work.get()
    work[0] += steps
    if work[0] > MOST_WORK:
        raise SecurityError("it does more than any chat needs")


def _spend(*values: Any) -> None:
    """Count values by all that is in them; values that share parts count these each time."""
    stack = list(values)
    while stack:
        value = stack.pop()
        _count(1 + len(value) if isinstance(value, str) else 1)
        if isinstance(value, Mapping):
            stack += [*value.keys(), *value.values()]
        elif isinstance(value, list | tuple | set | frozenset):
            stack += value
        elif isinstance(value, int) and not abs(value) < MOST_NUMBER:
            raise SecurityError("it makes a number of more than 19 digits")


def _each(items: Iterable[Any]) -> list[Any]:
    """The items of a loop, counted before its first pass."""
    listed = list(islice(items, MOST_WORK))
    _count(len(listed))
    return listed


def _used(value: Any) -> Any:
    """A value, counted."""
    _spend(value)
    return value


def _bounded(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A filter whose arguments and results are counted, and which makes nothing that it doesn't count."""

    @wraps(function)  # also the mark of what jinja passes first
    def bounded(*arguments: Any, **named: Any) -> Any:
        passed = arguments[1:] if hasattr(function, "jinja_pass_arg") else arguments
        extra = [*passed[1:], *named.values()]
        if any(isinstance(value, int) and abs(value) > MOST_WIDTH for value in extra):
            raise SecurityError(f"it calls {name} with a number above {MOST_WIDTH}")
        listed = [_each(value) if hasattr(value, "__next__") else value for value in passed]
        _spend(listed, extra)
        _check_growth(name, listed[0] if listed else "", [*listed[1:], *named.values()])
        result = function(*arguments[: len(arguments) - len(passed)], *listed, **named)
        result = _each(result) if hasattr(result, "__next__") else result
        return _used(result)

    return bounded


def _check_growth(name: str, value: Any, extra: Sequence[Any]) -> None:
    """Count what joining and replacing would make, before it is made."""
    texts = [text for text in extra if isinstance(text, str)]
    if name == "replace" and isinstance(value, str) and len(texts) > 1:
        letters = (value.count(texts[0]) if texts[0] else len(value) + 1) * len(texts[1])
    elif name == "join" and texts and hasattr(value, "__len__"):
        letters = len(value) * len(texts[0])
    else:
        return
    _count(letters)


class _Names(Namespace):
    """A namespace without private names, as that of transformers."""

    def __setitem__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            raise SecurityError(f"it sets the private name {name!r}")
        super().__setitem__(name, value)


class _Generation(Extension):
    """`{% generation %}`, which marks a model's own words for training: they are rendered as they are."""

    tags = {"generation"}  # noqa: RUF012  # as jinja declares it

    def parse(self, parser: Any) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Counted(NodeTransformer):
    """Lets everything that a template loops over, makes or compares go through the filters that count."""

    @staticmethod
    def _through(name: str, node: nodes.Node) -> nodes.Filter:
        return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)

    def visit_For(self, node: nodes.For) -> nodes.For:
        self.generic_visit(node)
        node.iter = self._through(EACH, node.iter)
        return node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Compare:
        self.generic_visit(node)
        node.expr = self._through(USED, node.expr)
        for operand in node.ops:
            operand.expr = self._through(USED, operand.expr)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Filter:
        self.generic_visit(node)
        node.nodes = [self._through(USED, part) for part in node.nodes]
        return self._through(USED, node)

    def visit_List(self, node: nodes.List) -> nodes.Filter:
        self.generic_visit(node)
        return self._through(USED, node)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Filter:
        self.generic_visit(node)
        return self._through(USED, node)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:
        self.generic_visit(node)
        return self._through(USED, node) if node.ctx == "load" else node

    def visit_TemplateData(self, node: nodes.TemplateData) -> nodes.Const:
        return nodes.Const(node.data, lineno=node.lineno)  # goes through `finalize`, as values do


class _Environment(ImmutableSandboxedEnvironment):
    """The sandbox of transformers' chat templates, with bounds."""

    intercepted_binops = frozenset(("+", "-", "*", "/", "//", "**", "%"))

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[_Generation, loopcontrols],
            finalize=_write,
            optimized=False,
        )
        stock = self.filters | {"tojson": _json}
        self.filters = {name: _bounded(stock[name], name) for name in FILTERS}
        self.filters |= {EACH: _each, USED: _used}
        self.globals = {
            "range": self.globals["range"],
            "namespace": _Names,
            "dict": dict,
            "raise_exception": _fail,
            "strftime_now": _now,
        }

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        return _Counted().visit(super()._parse(source, name, filename))

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        numbers = isinstance(left, int | float) and isinstance(right, int | float)
        if operator == "**" or (operator in ("*", "%") and not numbers):
            raise SecurityError(f"it uses {operator} on {type(left).__name__} and {type(right).__name__}")
        _spend(left, right)
        return _used(super().call_binop(context, operator, left, right))

    def wrap_str_format(self, value: Any) -> None:
        """No format strings: a width in them makes a text of any length in one step."""

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        allowed = not callable(value) or attr in METHODS or isinstance(obj, LoopContext | Namespace)
        return allowed and super().is_safe_attribute(obj, attr, value)

    def call(self, context: Any, function: Any, *arguments: Any, **named: Any) -> Any:
        _spend(*arguments, *named.values())
        owner = getattr(function, "__self__", None)
        if isinstance(owner, str):  # a method of a text; `", ".join(items)` has them the other way round
            name = getattr(function, "__name__", "")
            listed = [_each(value) if hasattr(value, "__next__") else value for value in arguments]
            arguments = tuple(listed)
            _check_growth(name, *((listed[0], [owner]) if name == "join" and listed else (owner, listed)))
        return _used(super().call(context, function, *arguments, **named))


@pass_context  # so that jinja doesn't fold constants away from it
def _write(context: Any, value: Any) -> Any:
    """What is written, counted."""
    return _used(value)


def _json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    """JSON without the escapes of jinja's own filter, as in transformers; a narrow indent at most."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent if indent is None else min(indent, 8),
        separators=separators,
        sort_keys=sort_keys,
    )


def _fail(message: Any) -> NoReturn:
    raise TemplateError(str(message))


def _now(format: str) -> str:
    """The time of day; no digits in the format, which would be widths."""
    if any(letter.isdigit() for letter in format):
        raise SecurityError(f"it asks for the time as {format[:40]!r}")
    return datetime.now().strftime(format)


@lru_cache(maxsize=32)
def _compiled(source: str) -> Template:
    return _Environment().from_string(source)
