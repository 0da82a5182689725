"""Chat templates within bounds: the text is transformers' own, and no template can run for ever or grow."""

from __future__ import annotations

import copy
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from PIL import Image

from arr_coc.files.worker import Worker
from arr_coc.seam import prompt as template
from arr_coc.seam.prompt import MAX_LETTERS, chat_prompt, check_template, render
from each import each
from tiny import FAMILIES, tiny

IMAGE = {"type": "image"}
CHATS: list[list[dict[str, Any]]] = [
    [{"role": "user", "content": [IMAGE, {"type": "text", "text": "What is “é” in {{ braces }}?\n"}]}],
    [
        {"role": ("user", "assistant")[i % 2], "content": [{"type": "text", "text": word}]}
        for i, word in enumerate(("one", "two", "three"))
    ],
]
LONG = "a" * 40_000
ORDINARY = {
    "loop": "{% for m in messages %}{{ loop.index }}{{ m.role }}{{ ' ' if not loop.last }}{% endfor %}",
    "sizes": "{{ messages|length * 2 + 7 % 4 }} {{ messages[-1].content|selectattr('type')|list|count }}",
    "texts": "{{ messages[0].role.upper().split('S')|join('-') }} {{ 'a' ~ 1 ~ 'b' }}{{ ('x' + 'y')|title }}",
    "json": "{{ {'a': [1, 'é']}|tojson }} {{ messages|tojson(indent=2) }} {{ [2, 1]|sort|list }}",
    "names": "{% set ns = namespace(n=0) %}"
    "{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
    "macro": "{% macro turn(m) %}<{{ m.role }}>{% endmacro %}"
    "{% for m in messages[::-1] %}{{ turn(m) }}{% endfor %}",
    "block": "{% set x %}{% generation %}words{% endgeneration %}{% endset %}"
    "{{ x }}{% for m in messages %}{% break %}{% endfor %}",
    "tokens": "{{ pad_token }}{{ bos_token is defined }}{% if tools %}tools{% endif %}{{ dict(a=1).a }}",
    "unpacked": "{% for k, v in {'a': 1}|items %}{{ k }}{{ v }}{% endfor %}{{ (1, 2)[0] }}{{ range(3)|sum }}",
}
HOSTILE = {
    "nested loops": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "written in a loop": "{% for i in range(99999) %}" + LONG + "{% endfor %}",
    "doubled text": "{% set ns = namespace(x='aaaa') %}" + "{% set ns.x = ns.x ~ ns.x %}" * 60,
    "added text": "{% set x = 'aaaa' %}" + "{% set x = x + x %}" * 60,
    "doubled list": "{% set x = ['a'] %}" + "{% set x = [x, x] %}" * 60 + "{{ x }}",
    "doubled block": "{% set x %}aaaa{% endset %}" + "{% set x %}{{ x }}{{ x }}{% endset %}" * 60,
    "doubled macro": "{% macro m(n) %}a{% if n %}{{ m(n-1) ~ m(n-1) }}{% endif %}{% endmacro %}{{ m(60) }}",
    "deep macro": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "deep loop": "{% for m in messages recursive %}{{ loop(messages) }}{% endfor %}",
    "deep brackets": "{{ " + "(" * 5000 + ")" * 5000 + " }}",
    "times": "{{ 'a' * 10000000000 }}",
    "power": "{{ 10 ** (10 ** 10) }}",
    "large number": "{% set ns = namespace(x=9) %}" + "{% set ns.x = ns.x * ns.x %}" * 40,
    "percent": "{{ '%10000000000d' % 3 }}",
    "format": "{{ '{:>10000000000}'.format(3) }}",
    "format map": "{{ '{a:>10000000000}'.format_map({'a': 3}) }}",
    "wide method": "{{ 'a'.ljust(10000000000) }}",
    "wide filter": "{{ 'a'|center(10000000000) }}",
    "wide json": "{{ messages|tojson(indent=10000000000) }}",
    "join": "{{ range(99999)|join('" + LONG + "') }}",
    "join method": "{{ '" + LONG + "'.join(range(99999)|map('string')) }}",
    "replace": "{{ '" + LONG + "'|replace('a', '" + LONG + "') }}",
    "replace method": "{{ '" + LONG + "'.replace('', '" + LONG + "') }}",
    "words": "{{ lipsum(n=10000000) }}",
    "internals": "{{ ''.__class__.__mro__ }}",
    "another file": "{% include 'secrets' %}",
    "no template": "{% for %}",
    "its own refusal": "{{ raise_exception('one user\nat a time') }}",
    "long": "a" * (MAX_LETTERS + 1),
    "long text": "{% for i in range(20000) %}" + "a" * 100 + "{% endfor %}",
    "in": "{% set x = range(99999)|list %}{% for i in x %}{{ -1 in x }}{% endfor %}",
    "equal": "{% set x = range(99999)|list %}{% for i in x %}{{ x[:] is eq x }}{% endfor %}",
    "count": "{% set x = '" + LONG + "' %}{% for i in range(99999) %}{{ x.count('b') }}{% endfor %}",
    "index": "{% set x = range(99999)|list %}{% for i in x %}{{ x.index(99998) }}{% endfor %}",
    "digits": "{% set x = '" + "1" * 40_000 + "' %}{% for i in range(99999) %}{{ x.isdigit() }}{% endfor %}",
    "slices": "{% set x = range(99999)|list %}{% for i in x %}{% set y = x[:] %}{% endfor %}",
    "separators": "{{ range(99999)|list|tojson(separators=['" + LONG + "', ':']) }}",
    "branches": "{% if 0 %}" + "{% elif 0 %}" * 8000 + "{% endif %}",
}
HARMLESS = {
    "private name": "{{ namespace(a=1).__init__ }}{% set ns = namespace() %}{% set ns._x = 1 %}",
    "doubled tuple": "{% set x = ('a',) %}" + "{% set x = (x, x) %}" * 60 + "{{ x == x }}",
    "time": "{{ strftime_now('%10000000000d') }}",
}


def processor(template: Any) -> Any:
    made = copy.copy(tiny("qwen3_vl").processor)
    made.chat_template = template
    return made


@each("chat", CHATS, ids=["image", "turns"])
class TestText:
    @pytest.mark.parametrize("family", FAMILIES)
    def test_of_every_family(self, family: str, chat: list[dict[str, Any]]) -> None:
        made = tiny(family).processor
        expected = made.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
        assert render(made, chat) == expected

    @each("name", ORDINARY)
    def test_of_ordinary_templates(self, name: str, chat: list[dict[str, Any]]) -> None:
        made = processor(ORDINARY[name])
        expected = made.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
        assert expected
        assert render(made, chat) == expected


@pytest.fixture(scope="module")
def child() -> Iterator[Worker]:
    worker = Worker(template.WORKER.script, "render_chat", seconds=0.1, megabytes=256)
    yield worker
    worker._end()


@each("name", HOSTILE)
def test_hostile_templates_are_refused(name: str, child: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template, "WORKER", child)
    start = time.perf_counter()
    with pytest.raises(ValueError, match=r"^the chat template can't be rendered ") as error:
        check_template(processor(HOSTILE[name]))
    assert time.perf_counter() - start < 10
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 500
    template._rendered.cache_clear()
    for _ in range(20):  # a busy machine may take long to start a child, and its first answer counts
        try:
            assert render(processor("{{ messages|length }}"), CHATS[1]) == "3"
            return
        except ValueError:
            continue
    pytest.fail("the next rendering fails")


@each("name", HARMLESS)
def test_what_looks_hostile_and_costs_nothing_is_rendered(name: str) -> None:
    check_template(processor(HARMLESS[name]))


def test_the_memory_of_this_process_is_not_used() -> None:
    """A chat template runs in a process that holds neither weights nor pictures."""
    made = processor("{{ messages[0].content[0].image }}")
    chat = [{"role": "user", "content": [{"type": "image", "image": Image.new("RGB", (8, 8))}]}]
    assert render(made, chat) == "<Image>"


def test_a_rendering_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[Any] = []
    ask = template.WORKER.ask
    monkeypatch.setattr(template.WORKER, "ask", lambda request: requests.append(request) or ask(request))
    template._rendered.cache_clear()
    made, timed = processor("{{ messages|length }}"), processor("{{ strftime_now('%f') }}")
    assert {render(made, CHATS[1]) for _ in range(3)} == {"3"}
    assert len(requests) == 1
    assert [render(made, chat) for chat in CHATS] == ["1", "3"]
    assert len({render(timed, CHATS[1]) for _ in range(3)}) == 3


def test_without_an_interpreter_the_reason_is_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for executable in ("", None, "/nowhere/python"):
        monkeypatch.setattr(sys, "executable", executable)
        monkeypatch.setattr(
            template, "WORKER", Worker(template.WORKER.script, "render_chat", seconds=1, megabytes=256)
        )
        with pytest.raises(RuntimeError, match=r"sys\.executable"):
            render(processor(f"{executable}"), CHATS[1])


def test_a_long_question_has_room() -> None:
    made = tiny("qwen3_vl").processor
    question = "Why? " * 100_000
    assert question in chat_prompt(made, question)


def test_named_templates() -> None:
    made = processor({"default": "{{ messages|length }}", "other": "{% for %}"})
    assert render(made, CHATS[1]) == "3"
    with pytest.raises(ValueError, match="can't be rendered"):
        render(processor({"other": "a"}), CHATS[1])
    with pytest.raises(ValueError, match="no text of at most"):
        render(processor(7), CHATS[1])


def test_a_processor_that_renders_itself_is_called() -> None:
    class Own:
        chat_template = "anything"

        def apply_chat_template(self, turns: Any, **options: Any) -> str:
            return f"{len(turns)} {sorted(options)}"

    assert render(Own(), CHATS[1]) == "3 ['add_generation_prompt', 'tokenize']"
