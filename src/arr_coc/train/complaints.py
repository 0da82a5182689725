"""Complaints about a recipe: a pydantic error in one line, with the setting, its value and the remedy."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from typing import get_args

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from arr_coc.choose.layer import ARRCOCConfig

EXPECTED = {
    "int_type": "it should be a whole number",
    "int_parsing": "it should be a whole number",
    "float_type": "it should be a finite number",
    "float_parsing": "it should be a finite number",
    "finite_number": "it should be a finite number",
    "string_type": "it should be a text",
    "string_too_short": "it should be a text",
    "tuple_type": "it should be a list of {items}",
    "too_short": "it should be a list of {items}, not empty",
    "dict_type": "it should be a table such as {{ small = 2.0 }}",
    "greater_than_equal": "use at least {ge:g}",
    "greater_than": "use more than {gt:g}",
    "less_than_equal": "use at most {le:.10g}",
    "int_from_float": "it should be a whole number",
    "int_parsing_size": "use fewer digits",
}
"""Type of a pydantic error -> the remedy."""


def explain(error: ValidationError, fields: Mapping[str, FieldInfo], key: str | None = None) -> str:
    """The first problem of a pydantic error in one line: the setting, its value and the remedy."""
    problem = min(error.errors(include_url=False), key=lambda each: each["type"] != "extra_forbidden")
    place = [*([key] if key else []), *problem["loc"]]
    if problem["type"] == "value_error":  # of a validator of ours, whose message says it all
        return str(problem["ctx"]["error"])
    name = ".".join(part for part in place if isinstance(part, str))
    field = fields.get(name.partition(".")[0])
    if problem["type"] == "extra_forbidden":
        return unknown(name, fields)
    if field is None or problem["type"] == "missing":
        return f"{name} is missing: set it ({field.description if field else problem['msg']})"
    if problem["type"] == "literal_error":
        choices = get_args(field.annotation)
        while not isinstance(choices[0], str):  # of a list of choices
            choices = get_args(choices[0])
        remedy = f"use one of {', '.join(choices)}"
    else:
        items = "whole numbers" if "int" in str(field.annotation) else "texts"
        remedy = EXPECTED.get(problem["type"], problem["msg"]).format(**problem.get("ctx", {}), items=items)
    holds = "has" if any(isinstance(part, int) for part in place) else "is"  # an item of a list
    return f"{name} {holds} {short(repr(problem['input']))}: {remedy}"


def short(text: str) -> str:
    """A value in a message: one line, and no book."""
    return " ".join(text.split()) if len(text) <= 80 else f"{' '.join(text[:77].split())}..."


def unknown(name: str, fields: Mapping[str, FieldInfo]) -> str:
    """A setting that there is none of, and those whose names are near; a layer's are `layer.NAME`."""
    names = {each: each for each in fields}
    if "layer" in fields:
        names = {each.name: f"layer.{each.name}" for each in dataclasses.fields(ARRCOCConfig)} | names
        names.pop("dim")  # the base model's
    near = difflib.get_close_matches(name, names, 3, 0.6)
    remedy = " or ".join(names[each] for each in near) or f"one of {', '.join(fields)}"
    return f"{name} is unknown: use {remedy}"
