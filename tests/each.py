"""`@each(names, values)`: the cases of one test, one after another, with the calling convention of
`pytest.mark.parametrize`. For cases that are cheap and alike; a failure names its case by its values.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import Any

import pytest
import torch


def each(names: str | Sequence[str], values: Iterable[Any], *, ids: Any = None) -> Callable:
    """Decorator: the test, or each test of a class that takes the arguments, runs once for each value.

    All cases run whatever fails, and the failures are raised together, each with its values as a note.
    `tmp_path` is a folder of its own for each case, what `monkeypatch` sets holds for one case, and torch
    draws the same numbers in each; other fixtures are shared by the cases. Cases with marks, e.g.
    `pytest.param(value, marks=pytest.mark.slow)`, are a test of their own for each set of marks. A test
    whose cases are all skipped is skipped.
    """
    named = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    groups: list[tuple[list, list[tuple[dict[str, Any], str]]]] = []  # marks, and the cases that have them
    for number, value in enumerate(values):
        arguments, marks, label = _case(named, value, isinstance(names, str) and len(named) == 1)
        label = label or _label(arguments, ids, number)
        for known, cases in groups:
            if known == marks:
                cases.append((arguments, label))
                break
        else:
            groups.append((marks, [(arguments, label)]))
    if not groups:
        raise ValueError(f"no values of {', '.join(named)}")

    def decorate(test: Any) -> Any:
        if inspect.isclass(test):
            for name, method in list(vars(test).items()):
                if name.startswith("test_") and set(named) <= set(inspect.signature(method).parameters):
                    setattr(test, name, decorate(method))
            return test
        return _looped(test, named, groups)

    return decorate


def _case(named: list[str], value: Any, bare: bool) -> tuple[dict[str, Any], list, str | None]:
    """Arguments, marks and name of one case; `bare`: its value is that of the one name, not a tuple."""
    marks: list = []
    label = None
    if isinstance(value, type(pytest.param())):
        marks, label, parts = list(value.marks), value.id, value.values
    else:
        parts = (value,) if bare else tuple(value)
    if len(parts) != len(named):
        raise ValueError(f"{len(parts)} values for {', '.join(named)}: {value!r}")
    return dict(zip(named, parts, strict=True)), marks, label


def _label(arguments: dict[str, Any], ids: Any, number: int) -> str:
    if ids is not None and not callable(ids):
        return str(ids[number])
    shown = []
    for name, value in arguments.items():
        said = ids(value) if ids else None
        text = repr(value) if said is None else str(said)
        shown.append(f"{name}={text if len(text) <= 200 else text[:200] + '...'}")
    return ", ".join(shown)


def _looped(test: Callable, named: list[str], groups: list) -> Callable:
    """The test without the arguments, a loop over its cases; parametrized where there are groups of marks."""
    signature = inspect.signature(test)
    missing = set(named) - set(signature.parameters)
    if missing:
        raise ValueError(f"{test} takes no {', '.join(sorted(missing))}")
    group = f"cases_of_{'_'.join(named)}"
    plain = len(groups) == 1 and not groups[0][0]

    @functools.wraps(test)
    def looped(*args: Any, **fixtures: Any) -> None:
        cases = groups[0][1] if plain else fixtures.pop(group)
        failures: list[BaseException] = []
        skips: list[BaseException] = []
        drawn = torch.get_rng_state()
        for number, (arguments, label) in enumerate(cases):
            torch.set_rng_state(drawn)
            try:
                with ExitStack() as stack:
                    test(*args, **_own(fixtures, number, stack), **arguments)
            except pytest.skip.Exception as skip:
                skips.append(skip)
            except (Exception, pytest.fail.Exception) as failure:
                failure.add_note(f"the case: {label}")
                failures.append(failure)
        if len(failures) == 1:
            raise failures[0]
        if failures:
            raise BaseExceptionGroup(f"{len(failures)} of {len(cases)} cases failed", failures)
        if len(skips) == len(cases):
            raise skips[0]

    parameters = [parameter for name, parameter in signature.parameters.items() if name not in named]
    if not plain:
        parameters.append(inspect.Parameter(group, inspect.Parameter.KEYWORD_ONLY))
    number_of_cases = sum(len(cases) for _, cases in groups) * getattr(test, "cases", 1)
    looped.__dict__.update(__signature__=signature.replace(parameters=parameters), cases=number_of_cases)
    if plain:
        return looped
    several = [
        pytest.param(cases, marks=marks, id="-".join(mark.name for mark in marks) or "unmarked")
        for marks, cases in groups
    ]
    return pytest.mark.parametrize(group, several)(looped)


def _own(fixtures: dict[str, Any], number: int, stack: ExitStack) -> dict[str, Any]:
    """The fixtures for one case: a folder and a monkeypatch of its own, and nothing captured yet."""
    own = dict(fixtures)
    if "tmp_path" in own:
        own["tmp_path"] = own["tmp_path"] / f"case{number}"
        own["tmp_path"].mkdir()
    if "monkeypatch" in own:
        own["monkeypatch"] = stack.enter_context(pytest.MonkeyPatch.context())
    for name in ("capsys", "capfd"):
        if name in own:
            own[name].readouterr()
    if "caplog" in own:
        own["caplog"].clear()
    if "recwarn" in own:
        own["recwarn"].clear()
    return own
