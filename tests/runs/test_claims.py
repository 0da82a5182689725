"""The project's targets, checked against summaries made by hand; the script of the README reads them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from arr_coc_lab.results.summary import summarise

sys.path.insert(0, str(Path(__file__).parents[2] / "runs"))

from claims import QUERY_BLIND, claims, claims_table, early_claims


def record(i, scores, family="value", **more):
    return {"id": f"{i}", "image": f"test:{i // 2}", "family": family, "total": 1024, "score": scores} | more


def records(count=100, **rates):
    """`count` questions of which each method gets the first share right."""
    names = {name.replace("_", "@"): rate for name, rate in rates.items()}
    return [record(i, {m: float(i < rate * count) for m, rate in names.items()}) for i in range(count)]


class TestClaims:
    def found(self, **rates):
        more = rates.pop("more", {})
        held = [x | more for x in records(1000, **rates)]
        return {c["claim"]: c for c in claims(summarise({}, held))}

    def test_a_target_holds_from_its_own_value_on(self):
        for ours, holds in ((0.96, True), (0.959, False)):
            claim = self.found(full=1, **{"arr-coc_64": ours})["arr-coc@64 keeps the score of all tokens"]
            assert claim["holds"] is holds
            assert claim["figure"] == f"{ours:.1%}"

    def test_what_was_not_measured_neither_holds_nor_fails(self):
        found = self.found(full=1)
        assert {c["holds"] for c in found.values()} == {None}
        assert {c["figure"] for c in found.values()} == {"not measured"}

    def test_the_best_query_blind_rival_counts(self):
        rates = {"arr-coc_64": 0.95, "scope_64": 0.5, "idpruner_64": 0.82, "fastv_64": 0.94}
        claim = self.found(full=1, **rates)["arr-coc@64 is above the best query-blind rival, idpruner@64"]
        assert claim["figure"] == "13.0 points"
        assert claim["holds"] is False

    def test_auto_needs_few_tokens(self):
        for tokens, holds in ((150, True), (150.2, False)):
            found = self.found(full=1, **{"arr-coc_auto": 1}, more={"tokens": {"arr-coc@auto": tokens}})
            assert found["arr-coc@auto reads few tokens"]["holds"] is holds

    @pytest.mark.parametrize(
        ("ours", "rival", "holds", "tied"),
        [
            (0.88, 0.80, True, False),
            (0.88, 0.88, True, True),  # at the ceiling
            (0.60, 0.60, False, False),  # equal, but not at the ceiling
            (0.60, 0.88, False, False),  # at the ceiling, but above ours
        ],
    )
    def test_below_ours_or_tied_at_the_ceiling(self, ours, rival, holds, tied):
        claim = self.found(full=0.88, **{"arr-coc_273": ours, "scope_273": rival})
        claim = claim["scope@273 is below arr-coc@273"]
        assert claim["holds"] is holds
        assert claim["figure"].startswith("tied") is tied

    def test_the_upper_bound_and_variants_are_no_rivals(self):
        rates = {"arr-coc_273": 1, "oracle_273": 1, "arr-coc:blind_273": 1, "random_273": 0}
        below = [c for c in self.found(full=1, **rates) if "is below" in c]
        assert below == ["random@273 is below arr-coc@273"]

    def test_choosing_before_the_encoder_is_checked_where_there_are_rows(self):
        def found(size, **rates):
            summary = summarise({"size": size}, records(1000, full=1, **rates))
            return {c["claim"]: c["holds"] for c in early_claims(summary)}

        sparse = "arr-coc sparse@{} keeps the score of all tokens"
        rates = {"arr-coc sparse_273": 0.98, "arr-coc sparse_64": 0.939}
        assert found(1024, **rates) == {sparse.format(273): True, sparse.format(64): False}
        assert found(1024, **{"arr-coc sparse_64": 0.94}) == {sparse.format(64): True}
        assert found(1024, **{"arr-coc_273": 1}) == {}
        assert found(2048, **{"arr-coc saccade": 0.98}) == {}  # nothing to compare it with
        assert found(1024, **{"arr-coc saccade": 0.98, "downsample_529": 0.5}) == {}
        together = [c["claim"] for c in claims(summarise({"size": 1024}, records(9, full=1, **rates)))]
        assert {sparse.format(273), sparse.format(64)} <= set(together)

    @pytest.mark.parametrize(("small", "holds"), [(0.9, True), (0.91, False)])
    def test_saccades_are_checked_where_shrinking_loses_small_print(self, small, holds):
        found = records(1000, full=1, **{"arr-coc saccade": 0.979})
        for i, x in enumerate(found):  # the second half is small print
            x["family"] = "small" if i >= 500 else "value"
            x["score"]["downsample@529"] = float(i < 500 + 500 * small)
        kept, lost = early_claims(summarise({"size": 2048}, found))
        assert (kept["claim"], kept["holds"]) == ("arr-coc saccade keeps the score of all tokens", False)
        assert (lost["claim"], lost["holds"]) == ("downsample@529 loses small print", holds)
        assert lost["figure"] == f"{100 * (1 - small):.1f} points"


def test_rivals_that_never_read_the_question() -> None:
    blind = {"visionzip", "divprune", "prumerge+", "scope", "visionselector", "idpruner"}
    assert set(QUERY_BLIND) == blind


def test_the_table_has_a_row_for_each_claim() -> None:
    found = claims(summarise({}, records(10, full=1, **{"arr-coc_64": 1.0})))
    lines = claims_table(found).splitlines()
    assert len(lines) == 2 + len(found)
    assert lines[0] == "| claim | target | measured | holds |"
    assert "| arr-coc@64 keeps the score of all tokens | at least 96.0% | 100.0% | yes |" in lines
    assert "| arr-coc@64 keeps the evidence cells | at least 95.0% | not measured | - |" in lines
