"""What a model's name says: the rule of its tokens, and whose limits hold."""

from __future__ import annotations

import random

import pytest

from arr_coc.pixels import RULES
from arr_coc.pixels.limits import LIMITS
from arr_coc.pixels.naming import FAMILIES, HOSTS, find_limits, guess_rule, named_rule


@pytest.mark.parametrize(
    ("host", "api", "model", "expected"),
    [
        ("api.openai.com", "chat", "ft:mine", "openai"),
        ("me.openai.azure.com", "chat", "gpt-4o", "azure"),
        ("me.services.ai.azure.com", "messages", "claude-opus-5", "claude"),
        ("api.mistral.ai", "chat", "pixtral-12b", "mistral"),
        ("api.groq.com", "chat", "meta-llama/llama-4-scout", "groq"),
        ("api.x.ai", "responses", "grok-4", "grok"),
        ("api.anthropic.com", "messages", "claude-opus-5", "claude"),
        ("127.0.0.1", "messages", "claude-haiku-4-5", "claude-4.6"),
        ("openrouter.ai", "chat", "anthropic/claude-sonnet-4.6", "claude-4.6"),
        ("gateway", "messages", "sonnet", "claude-4.6"),
        ("gateway", "messages", "mine", "messages"),
        ("gateway", "messages", "qwen3-vl", "local"),
        ("gateway", "chat", "gpt-oss-120b", "local"),
        ("gateway", "chat", "google/gemini-3-pro", "gemini"),
        ("127.0.0.1", "chat", "qwen3-vl", "local"),
        ("127.0.0.1", "ollama", "qwen3-vl", "ollama"),
        ("127.0.0.1", "ollama", "llama3.2-vision:11b", "ollama-mllama"),
        ("notopenai.com", "chat", "", "local"),
        ("x.ai.example.org", "chat", "", "local"),
    ],
)
def test_whose_limits_they_are(host: str, api: str, model: str, expected: str) -> None:
    assert find_limits(host, api, model).name == expected


def test_a_name_that_says_nothing_is_none() -> None:
    assert named_rule("my-deployment", "") is None
    assert guess_rule("my-deployment") == "32"
    assert named_rule("gpt-5-nano") == "gpt-5-nano"
    assert named_rule("devstral-2") == "mistral"


def test_whatever_the_names_there_are_limits() -> None:
    rng = random.Random(2)
    signs = "abcopqwgemini-claude345.67:/ \n\x00日"
    for _ in range(500):
        host, model = ("".join(rng.choices(signs, k=rng.randrange(30))) for _ in range(2))
        assert find_limits(host, rng.choice(["chat", "messages", "ollama", ""]), model).name in LIMITS
    assert {name for _, name in (*HOSTS, *FAMILIES)} <= LIMITS.keys()
    assert {named_rule(name) for name in RULES} <= RULES.keys()
