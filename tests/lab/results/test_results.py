"""Result files, what is computed from them, and the tables."""

from __future__ import annotations

import gzip
import json
from typing import ClassVar

import numpy as np
import pytest
import torch

from arr_coc_lab.results.files import (
    append_results,
    decode_kept,
    encode_kept,
    read_results,
    write_results,
)
from arr_coc_lab.results.kinds import kind
from arr_coc_lab.results.summary import by_budget, realised_gain, summarise
from arr_coc_lab.results.table import table

HEADER = {"model": "bundled", "seed": 0}


def record(i, scores, family="value", **more):
    return {"id": f"{i}", "image": f"test:{i // 2}", "family": family, "total": 1024, "score": scores} | more


def records(count=100, **rates):
    """`count` questions of which each method gets the first share right."""
    names = {name.replace("_", "@"): rate for name, rate in rates.items()}
    return [record(i, {m: float(i < rate * count) for m, rate in names.items()}) for i in range(count)]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "out.jsonl"


class TestFile:
    @pytest.mark.parametrize("name", ["out.jsonl", "out.jsonl.gz"])
    def test_what_is_written_is_read(self, tmp_path, name):
        written = [*records(5, full=0.6), record(9, {"full": 1}, question="Größe\u2028?")]
        write_results(tmp_path / name, HEADER, written)
        assert read_results(tmp_path / name) == (HEADER, written)

    def test_equal_records_give_equal_bytes(self, tmp_path):
        for name in ("a.gz", "b.gz"):
            write_results(tmp_path / name, HEADER, records(5, full=0.6))
        assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()

    def test_a_run_killed_at_any_byte_goes_on_where_it_was(self, tmp_path):
        all_records = records(4, full=0.5)
        write_results(tmp_path / "whole.jsonl", HEADER, all_records)
        whole = (tmp_path / "whole.jsonl").read_bytes()
        for end in range(whole.index(b"\n") + 1, len(whole) + 1):
            path = tmp_path / f"{end}.jsonl"
            path.write_bytes(whole[:end])
            _, found = read_results(path)
            assert found == all_records[: len(found)]
            assert len(found) >= whole[:end].count(b"\n") - 1
            append_results(path, all_records[len(found) :])
            assert path.read_bytes() == whole

    def test_a_cut_off_line_inside_an_archive_is_dropped(self, tmp_path):
        write_results(tmp_path / "a.jsonl", HEADER, records(3, full=1))
        content = (tmp_path / "a.jsonl").read_bytes()
        (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(content[:-7]))
        assert len(read_results(tmp_path / "a.jsonl.gz")[1]) == 2

    @pytest.mark.parametrize(
        ("line", "said"),
        [
            ('{"id": "7", "im', "is not JSON"),
            ("", "is not JSON"),
            ("[" * 200_000 + "1", "can't be read .nested too deep"),
            ("[1]", "no object"),
            ('{"image": "a", "score": {"full": 1}}', "'id' is missing"),
            ('{"id": "7", "image": "a"}', "'score' is missing"),
            ('{"id": "7", "image": "a", "score": {"full": NaN}}', "NaN is no number"),
            ('{"id": "7", "image": "a", "score": {"full": 1e999}}', "a finite number"),
            (
                '{"id": "7", "image": "a", "score": {"full": 87}}',
                "is 87: it should be less than",
            ),
            ('{"id": "0", "image": "a", "score": {"full": 1}}', "repeats the id '0' of line 2"),
        ],
    )
    def test_garbage_in_the_middle_is_named_by_file_and_line(self, path, line, said):
        lines = [{"header": HEADER}, *records(3, full=1)]
        texts = [json.dumps(x) for x in lines]
        path.write_text("\n".join([*texts[:3], line, texts[3]]) + "\n")
        with pytest.raises(ValueError, match=rf"out\.jsonl, line 4.*{said}"):
            read_results(path)

    @pytest.mark.parametrize("content", ["", '{"header": {"mod', '{"id": "0"}\n', "hello\n"])
    def test_a_file_without_a_header_is_refused(self, path, content):
        path.write_text(content)
        with pytest.raises(ValueError, match=r"out\.jsonl"):
            read_results(path)

    def test_files_that_cannot_be_used_are_named(self, tmp_path):
        with pytest.raises(ValueError, match=r"none\.jsonl cannot be read"):
            read_results(tmp_path / "none.jsonl")
        with pytest.raises(ValueError, match=r"none\.jsonl' cannot be written"):
            append_results(tmp_path / "none.jsonl", [])
        write_results(tmp_path / "a.gz", HEADER, records(50, full=1))
        with pytest.raises(ValueError, match=r"a\.gz is compressed"):
            append_results(tmp_path / "a.gz", [])
        (tmp_path / "a.gz").write_bytes((tmp_path / "a.gz").read_bytes()[:-20])
        with pytest.raises(ValueError, match=r"a\.gz is no whole gzip"):
            read_results(tmp_path / "a.gz")


class TestKept:
    @pytest.mark.parametrize("total", [1, 7, 8, 9, 1024, 35 * 13])
    def test_decoding_gives_back_the_cells(self, total):
        keep = torch.randperm(total, generator=torch.Generator().manual_seed(total))[: total // 3]
        mask = decode_kept(encode_kept(keep, total), total)
        assert mask.dtype == bool
        assert mask.shape == (total,)
        assert set(mask.nonzero()[0]) == set(keep.tolist())

    def test_any_kind_of_indices(self):
        texts = {encode_kept(kept, 20) for kept in ([3, 11], np.array([11, 3]), torch.tensor([3, 11]))}
        assert len(texts) == 1

    @pytest.mark.parametrize("keep", [[-1], [20], [3, 3], [0.5], [[1, 2]], [True, False]])
    def test_what_is_no_set_of_cells_is_refused(self, keep):
        with pytest.raises(ValueError, match="kept cell"):
            encode_kept(keep, 20)

    def test_a_mask_of_another_image_is_refused(self):
        text = encode_kept([3, 19], 20)
        for total in (8, 19, 25):
            with pytest.raises(ValueError, match="no mask"):
                decode_kept(text, total)
        with pytest.raises(ValueError, match="base64"):
            decode_kept("!?", 8)


class TestSummary:
    def test_by_hand(self):
        found = [
            record(0, {"full": 1.0, "arr-coc@64": 1.0, "random@64": 0.0}, "count", evidence=64),
            record(1, {"full": 1.0, "arr-coc@64": 0.5, "random@64": 0.0}, "count", evidence=None),
            record(2, {"full": 1.0, "arr-coc@64": 1.0, "random@64": 1.0}, "title", evidence=32),
            record(3, {"full": 0.0, "arr-coc@64": 0.5, "random@64": 0.0}, "title", evidence=0),
        ]
        for i, x in enumerate(found):
            x["tokens"] = {"full": 1024, "arr-coc@64": 60 + 2 * i}
        found[0] |= {"recall": {"arr-coc@64": 1.0}, "swap": {"arr-coc@64": 0.2}}
        found[2] |= {"recall": {"arr-coc@64": 0.5}, "hit": {"arr-coc@64": 1.0}}
        found[0] |= {"hit": {"arr-coc@64": 0.0}}
        for i, (whole, ours) in ((0, (40.0, 10.0)), (1, (90.0, 30.0)), (3, (50.0, 25.0))):
            stages = {"encode": 1.0, "select": 2.0, "prefill": ours - 3}
            found[i]["ms"] = {"full": {"encode": 1.0, "prefill": whole - 1}, "arr-coc@64": stages}
        found[0]["peak_mb"] = {"arr-coc@64": 80.0}
        found[1]["peak_mb"] = {"arr-coc@64": 90.0}
        summary = summarise(HEADER, found)
        assert (summary["questions"], summary["images"], summary["timed"]) == (4, 2, 3)
        assert summary["evidence share"] == pytest.approx((64 + 32) / 2 / 1024, abs=1e-4)
        ours, null = summary["methods"]["arr-coc@64"], summary["methods"]["random@64"]
        assert (ours["score"], ours["retained"], ours["difference"]["mean"]) == (0.75, 1.0, 0.0)
        assert (null["score"], null["retained"], null["below ours"]["mean"]) == (0.25, 0.3333, 0.5)
        assert ours["families"] == {"title": {"score": 0.75, "n": 2}, "count": {"score": 0.75, "n": 2}}
        assert ours["worst family"] == ["count", 0.75]
        assert null["worst family"] == ["count", 0.0]
        assert (ours["tokens"], ours["recall"], ours["swap IoU"], ours["peak_mb"]) == (63.0, 0.75, 0.2, 90.0)
        assert ours["hit"] == 0.5
        # of 0.75 / (964 / 1024), 0.667 / (962 / 1024) and 0.5 / (958 / 1024)
        assert ours["realised"] == pytest.approx(2 / 3 / (962 / 1024), abs=1e-3)
        assert summary["methods"]["full"]["realised"] is null["realised"] is null["hit"] is None
        assert ours["ttft_ms"] == 25.0
        assert ours["ttft ratio"] == 3.0  # of 4, 3 and 2; the ratio of the medians would be 2
        assert ours["stages"] == {"encode": 1.0, "select": 2.0, "prefill": 22.0}
        assert ours["below ours"] is None
        assert summary["methods"]["full"]["retained"] == 1.0

    @pytest.mark.parametrize(
        ("ms", "tokens", "gain"),
        [
            (25.0, 256, 1.0),  # a quarter of the tokens in a quarter of the time
            (100.0, 256, 0.0),
            (175.0, 256, -1.0),  # choosing costs more than it saves
            (4.0, 512, 1.92),  # more than in proportion
            (50.0, 1024, None),  # nothing was dropped
        ],
    )
    def test_the_share_of_the_gain_that_is_realised(self, ms, tokens, gain):
        timed = {"ms": {"full": {"prefill": 100.0}, "scope@64": {"select": ms / 2, "prefill": ms / 2}}}
        one = record(0, {"full": 1.0}, tokens={"full": 1024, "scope@64": tokens}, **timed)
        assert realised_gain(one, "scope@64") == (None if gain is None else pytest.approx(gain))
        assert realised_gain(one, "random@64") is realised_gain(one, "full") is None
        assert realised_gain(record(0, {"full": 1.0}), "scope@64") is None

    def test_it_is_json_and_always_the_same(self):
        found = records(60, full=0.9, **{"arr-coc_64": 0.85, "scope_64": 0.4})
        summary = summarise(HEADER, found)
        assert json.loads(json.dumps(summary, allow_nan=False)) == summary
        assert summarise(HEADER, found) == summary

    def test_what_was_not_measured_is_none(self):
        bare = [{"id": f"{i}", "image": "a", "score": {"arr-coc@64": 0.0, "full": 0.0}} for i in range(3)]
        summary = summarise({}, bare)
        row = summary["methods"]["arr-coc@64"]
        missing = (
            "retained",
            "tokens",
            "recall",
            "hit",
            "swap IoU",
            "ttft_ms",
            "ttft ratio",
            "realised",
            "peak_mb",
            "worst family",
        )
        assert all(row[name] is None for name in missing)
        assert summary["evidence share"] is None
        assert row["stages"] == row["families"] == {}
        assert row["score"] == 0.0
        assert "| method | exact match |" in table(summary)

    def test_a_paired_interval_is_narrower_than_two_separate_ones(self):
        summary = summarise({}, records(200, full=0.8, **{"arr-coc_64": 0.75, "scope_64": 0.5}))
        low, high = summary["methods"]["scope@64"]["below ours"]["interval"]
        ends = [summary["methods"][m]["interval"] for m in ("arr-coc@64", "scope@64")]
        assert 0.15 < low < 0.25 < high < 0.35
        assert high - low < (ends[0][1] - ends[1][0]) - (ends[0][0] - ends[1][1])

    def test_intervals_are_over_images(self):
        """Two images, on one of which everything is right: over their eight questions it would look surer."""
        found = [
            record(i, {"full": float(i < 4), "arr-coc@64": 1.0, "scope@64": float(i < 4)}) for i in range(8)
        ]
        for number, one in enumerate(found):
            one["image"] = f"{number // 4}"
        methods = summarise({}, found)["methods"]
        assert methods["full"]["interval"] == [0.0, 1.0]
        assert methods["scope@64"]["below ours"] == {"mean": 0.5, "interval": [0.0, 1.0]}
        assert methods["arr-coc@64"]["difference"] == {"mean": 0.5, "interval": [0.0, 1.0]}

    def test_a_method_is_compared_on_the_questions_it_answered(self):
        found = records(10, full=0.5, **{"arr-coc_64": 0.5})
        for x in found[:4]:  # the first are right
            x["score"]["scope@64"] = 0.5
        row = summarise({}, found)["methods"]["scope@64"]
        assert (row["n"], row["score"], row["retained"]) == (4, 0.5, 0.5)
        assert row["below ours"]["mean"] == 0.5

    def test_ours_is_compared_at_the_same_budget_only(self):
        summary = summarise({}, records(10, full=1, **{"arr-coc_64": 0.9, "scope_64": 0.5, "scope_32": 0.2}))
        assert summary["methods"]["scope@64"]["below ours"]["mean"] == 0.4
        assert summary["methods"]["scope@32"]["below ours"] is None

    def test_no_questions_are_refused(self):
        with pytest.raises(ValueError, match="no questions"):
            summarise(HEADER, [])


class TestTable:
    RATES: ClassVar = dict.fromkeys(["full", "mmtok_1024", "arr-coc_273", "arr-coc_auto"], 0.9) | {
        "oracle_64": 1,
        "random_64": 0.3,
        "scope_64": 0.4,
        "fastv_64": 0.6,
        "arr-coc_64": 0.5,
        "arr-coc:x_64": 0.2,
    }

    @pytest.mark.slow
    def test_by_budget_ours_first_then_rivals_nulls_and_the_bound(self):
        groups = by_budget(summarise({}, records(10, **self.RATES)))
        assert list(groups) == ["", "1024", "273", "64", "auto"]
        order = ["arr-coc@64", "arr-coc:x@64", "fastv@64", "scope@64", "random@64", "oracle@64"]
        assert groups["64"] == order
        assert [kind(m) for m in order] == ["ours", "variant", "rival", "rival", "null", "bound"]

    def test_sparse_is_compared_with_ours_at_the_same_budget(self):
        summary = summarise({}, records(10, full=1, **{"arr-coc_64": 0.9, "arr-coc sparse_64": 0.7}))
        assert summary["methods"]["arr-coc sparse@64"]["below ours"]["mean"] == 0.2
        assert summary["methods"]["arr-coc@64"]["below ours"] is None

    @pytest.mark.slow
    def test_every_row_has_every_column(self):
        summary = summarise({"metric": "vqa_accuracy"}, records(10, **self.RATES))
        for columns in ("short", "families"):
            lines = table(summary, columns).splitlines()
            assert len(lines) == 2 + len(self.RATES)
            assert len({line.count("|") for line in lines}) == 1
        assert "vqa accuracy" in table(summary)
        assert "| full | 90.0% (" in table(summary)

    def test_the_weakest_family_is_bold(self):
        found = [record(i, {"full": float(i % 4 > 0)}, "ab"[i % 2]) for i in range(8)]
        assert "| full | 75.0% | **50.0%** | 100.0% |" in table(summarise({}, found), "families")

    @pytest.mark.parametrize("columns", ["budgets", "families"])
    def test_nothing_is_bold_that_is_0(self, columns):
        scores = {"full": 0.0, "arr-coc@64": 0.0, "random@64": 0.0}
        found = [record(i, scores, "ab"[i % 2], tokens=dict.fromkeys(scores, 64.0)) for i in range(8)]
        text = table(summarise({}, found), columns)
        assert "0.0%" in text
        assert "**0.0%" not in text

    def test_what_cannot_be_shown_is_refused(self):
        summary = summarise({}, [{"id": "0", "image": "a", "score": {"full": 1.0}}])
        with pytest.raises(ValueError, match="'long'"):
            table(summary, "long")
        with pytest.raises(ValueError, match="no families"):
            table(summary, "families")
