"""`each`: every case runs, and what fails is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from each import each

RAN: list[tuple[int, str]] = []


@each("name", ["a", "b"])
@each(("number", "unused"), [(1, None), (2, None)])
def test_every_pair_of_two_runs(number: int, unused: None, name: str) -> None:
    RAN.append((number, name))
    assert len(set(RAN)) == len(RAN)


@pytest.mark.parametrize("more", [0])
@each("number", [3, pytest.param(4, marks=pytest.mark.slow), 5])
def test_marked_cases_are_a_test_of_their_own(number: int, more: int, request: pytest.FixtureRequest) -> None:
    assert (number == 4) == (request.node.get_closest_marker("slow") is not None)
    assert more == 0


@each("name", ["a", "b"])
class TestClass:
    def test_of_each(self, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        assert not list(tmp_path.iterdir())
        (tmp_path / "one").touch()
        assert not hasattr(pytest, "tried")
        monkeypatch.setattr(pytest, "tried", name, raising=False)

    def test_of_none(self) -> None:
        pass


def test_failures_are_named_and_every_case_runs() -> None:
    ran = []

    @each("number", range(4))
    def check(number: int) -> None:
        ran.append(number)
        assert number % 2 == 0

    with pytest.raises(BaseExceptionGroup, match="2 of 4") as caught:
        check()
    assert ran == [0, 1, 2, 3]
    assert [error.__notes__ for error in caught.value.exceptions] == [
        ["the case: number=1"],
        ["the case: number=3"],
    ]

    @each("number", [1, 2])
    def fail(number: int) -> None:
        if number == 2:
            pytest.fail("no")

    with pytest.raises(pytest.fail.Exception) as alone:
        fail()
    assert alone.value.__notes__ == ["the case: number=2"]


def test_skips() -> None:
    ran = []

    @each("number", [1, 2])
    def some(number: int) -> None:
        if number == 1:
            pytest.skip("not here")
        ran.append(number)

    some()
    assert ran == [2]

    @each("number", [1, 2])
    def none(number: int) -> None:
        pytest.skip("nowhere")

    with pytest.raises(pytest.skip.Exception, match="nowhere"):
        none()


def test_what_is_wrong_in_a_decorator_is_named() -> None:
    with pytest.raises(ValueError, match="no values of number"):
        each("number", [])
    with pytest.raises(ValueError, match="2 values for number"):
        each(("number",), [(1, 2)])
    with pytest.raises(ValueError, match="takes no other"):
        each("other", [1])(test_skips)
