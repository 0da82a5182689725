"""What a model's name says: the rule that counts its pictures' tokens, and the limits that its server has.

named_rule("anthropic/claude-opus-5")                   "claude"; None where a name says nothing
find_limits("api.mistral.ai", "chat", "pixtral-12b")    a row of `LIMITS`
"""

from __future__ import annotations

import re

from arr_coc.pixels.limits import LIMITS, Limits
from arr_coc.pixels.rules import RULES

OTHER_RULE = 32  # px of a token where a model's name says nothing
BEFORE_NAMES = (  # (a pattern of a model's name, its rule), tried before the names of the rules themselves
    (r"claude-(v?2|3|instant)|claude-[a-z]+-4(?!-?\.?([7-9]|\d\d(?!\d)))", "claude-4.6"),
    (r"gemini-[12]", "gemini-2.5"),
    (r"qwen-?2", "qwen2.5"),
    (r"gemma-?4", "gemma-4"),
    (r"gemma-?3", "gemma-3"),
)
AFTER_NAMES = (
    (r"gpt-4", "gpt-4o"),
    (r"(?<![a-z0-9])o1", "o3"),
    (r"min?istral|magistral|devstral", "mistral"),
)
HOSTS = (  # (a pattern of an upstream's host, its limits), whatever the model
    (r"(^|\.)openai\.com$", "openai"),
    (r"\.azure\.com$", "azure"),
    (r"(^|\.)x\.ai$", "grok"),
    (r"(^|\.)mistral\.ai$", "mistral"),
    (r"(^|\.)groq\.com$", "groq"),
)
FAMILIES = (  # (a pattern of a model's name, its limits) behind any other host
    (r"(?<![a-z])(opus|sonnet|haiku)(?![a-z])", "claude-4.6"),
    (r"(?<![a-z0-9])(gpt-(?!oss)|chatgpt|o[134](-|$)|computer-use|codex)", "openai"),
    (r"gemini", "gemini"),
    (r"grok", "grok"),
)
MLLAMA = re.compile(r"llama-?3\.?2-?:?.*vision|mllama")


def named_rule(*models: str) -> str | None:
    """Return the name of the rule by which models of a name count pictures; None: the names say none.

    Of several names, the first that says one counts. Law: `find_rule` knows what is returned.
    """
    return next(filter(None, map(_rule_of, models)), None)


def guess_rule(*models: str) -> str:
    """Return the rule of `named_rule`; squares of OTHER_RULE px if the names say none."""
    return named_rule(*models) or str(OTHER_RULE)


def find_limits(host: str, api: str, *models: str) -> Limits:
    """Return the limits of a server; never an error.

    Args:
        host: of its address.
        api: "chat", "responses", "messages" or "ollama".
        models: names of the model, the first that says something counts.
    """
    claude = next((model for model in models if "claude" in model.lower()), None)
    if claude is not None:  # it has its own limits behind any host
        return LIMITS["claude" if named_rule(claude) == "claude" else "claude-4.6"]
    for pattern, name in HOSTS:
        if re.search(pattern, host.lower().partition(":")[0]):
            return LIMITS[name]
    if api == "ollama":
        return LIMITS["ollama-mllama" if any(map(MLLAMA.search, map(str.lower, models))) else "ollama"]
    for model in models:
        for pattern, name in FAMILIES:
            if re.search(pattern, model.lower()):
                return LIMITS[name]
    return LIMITS["messages" if api == "messages" and named_rule(*models) is None else "local"]


def _rule_of(model: str) -> str | None:
    name = model.lower()
    named = ((rf"(?<![a-z0-9]){re.escape(rule)}", rule) for rule in sorted(RULES, key=len, reverse=True))
    for pattern, rule in (*BEFORE_NAMES, *named, *AFTER_NAMES):
        if rule in RULES and re.search(pattern, name):
            return rule
    return None
