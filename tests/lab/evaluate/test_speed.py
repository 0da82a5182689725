"""Benchmarks: every way ends where it should, counts what it computes, and is timed beside the others."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
import torch
import typer
from torch import nn
from typer.testing import CliRunner

from arr_coc.choose.stem import Stem
from arr_coc.choose.stopwatch import Stopwatch
from arr_coc.model import ARRCOCModel
from arr_coc_lab.cli.bench import command
from arr_coc_lab.evaluate import speed as benches
from arr_coc_lab.evaluate.speed import (
    STAGES,
    Arrival,
    Counted,
    SpeedRow,
    bench,
    compare,
    count,
    find_way,
    measure,
    prompt,
    summarise,
)
from arr_coc_lab.evaluate.ways import STOCK, rivals_on_stock
from arr_coc_lab.evaluate.work import ByteCounter, attention_flops
from arr_coc_lab.rivals import QueryBlindScorer
from each import each
from near import near
from tiny import FAMILIES, QWEN_FAMILIES, picture, save_tiny, tiny

IMAGE = picture(3, (96, 96))  # 144 cells of a tiny Qwen
QUESTION = "What is it?"
CELLS = 144
CPU = torch.device("cpu")


def model(family: str = "qwen3_vl", trained: bool = True, relevance: str = "auto") -> ARRCOCModel:
    built = tiny(family)
    stem = Stem(built.model.config.get_text_config().hidden_size, width=16, blocks=1)
    made = ARRCOCModel(built.model, built.processor, stem=stem if trained else None, strict=True)
    made.layer.trained = trained
    made.relevance = relevance
    return made


@torch.no_grad()
def arrive(made: ARRCOCModel, mode: str, batch: int = 1, scorer: QueryBlindScorer | None = None) -> Arrival:
    inputs = prompt(made, IMAGE, QUESTION, batch)
    return find_way(made, mode, scorer)(inputs, Stopwatch(CPU))


def row(
    mode: str, ms: float = 100.0, tflop: float = 1.0, gbyte: float = 1.0, select: float = 0.0
) -> SpeedRow:
    stages = dict.fromkeys(STAGES, 0.0) | {"process": 20.0}
    return SpeedRow(mode, 1, 4.0, ms, [ms], stages, select, tflop, gbyte, 1.0)


class TestWays:
    @pytest.mark.parametrize("family", FAMILIES)
    def test_all_tokens_through_us_give_the_stock_logits(self, family):
        made = model(family)
        inputs = prompt(made, IMAGE, QUESTION, 2)
        with torch.no_grad():
            expected = made.base(**inputs).logits[:, -1]
        stock, full = arrive(made, STOCK, 2), arrive(made, "full", 2)
        assert near(stock.logits, expected)
        assert torch.equal(full.logits, stock.logits)
        assert full.tokens == stock.tokens == (inputs["input_ids"] == made.adapter.image_token_id).sum() / 2

    @pytest.mark.parametrize("family", FAMILIES)
    def test_modes_read_what_they_are_allowed_or_say_what_ran(self, family):
        made = model(family)
        total = arrive(made, STOCK).tokens
        for mode in ("prune@8", "sparse@8"):
            found = arrive(made, mode)
            assert 8 <= found.tokens < total  # newline tokens of some families stay
            assert found.ran == (mode.split("@")[0] if family in QWEN_FAMILIES else "prune")
            assert (found.note is None) == (found.ran == mode.split("@")[0])

    def test_kept_tokens_alone_decide(self):
        made = model()
        same = arrive(made, STOCK).logits
        assert near(arrive(made, f"prune@{CELLS}").logits, same)
        assert not torch.allclose(arrive(made, "prune@8").logits, same, atol=1e-2)

    @each("name", [name for name in rivals_on_stock() if name != "idpruner"])
    def test_rivals_read_as_many_as_they_are_given(self, name):
        made = model()
        dim = made.layer.config.dim
        found = arrive(made, f"{name}@16", scorer=QueryBlindScorer(dim, dim // 2).requires_grad_(False))
        layers = made.config.get_text_config().num_hidden_layers
        assert found.tokens == ((CELLS + 16 * (layers - 1)) / layers if name == "fastv" else 16)
        assert found.logits.isfinite().all()

    def test_gaze_looks_as_without_a_trained_allocator(self):
        untaught = model(trained=False)
        untaught.relevance = "gaze"
        expected = arrive(untaught, "sparse@8").logits
        assert torch.equal(arrive(model(), "sparse gaze@8").logits, expected)
        assert not torch.equal(arrive(model(), "sparse@8").logits, expected)

    @pytest.mark.slow
    def test_rows_of_a_batch_are_each_the_single_one(self):
        for mode in ("prune@8", "sparse@8", "saccade", "compress"):
            one, four = arrive(model(), mode), arrive(model(), mode, 4)
            assert four.tokens == one.tokens
            assert near(four.logits, one.logits.expand(4, -1))

    def test_a_failed_choice_is_no_measurement(self, monkeypatch):
        made = model()
        made.strict = False
        monkeypatch.setattr(type(made.layer), "allocate", lambda *_: 1 / 0)
        with pytest.raises(ValueError, match="choosing failed"):
            arrive(made, "prune@8")

    @pytest.mark.parametrize(
        ("mode", "message"),
        [("prun@8", "unknown"), ("oracle@8", "unknown"), ("prune@x", "not a number"),
         ("visionzip", "visionzip@273"), ("divprune@0.5", "divprune@273"), ("prune@145", "exceeds")],
    )  # fmt: skip
    def test_bad_names_and_budgets(self, mode, message):
        with pytest.raises(ValueError, match=message):
            arrive(model(), mode)

    def test_rivals_take_one_image(self):
        with pytest.raises(ValueError, match="batch 1"):
            arrive(model(), "divprune@8", batch=2)


class TestCount:
    def test_operations_are_those_worked_out_by_hand(self):
        made = model()
        columns = prompt(made, IMAGE, QUESTION)["input_ids"].shape[1]
        patches, vision, text = 4 * CELLS, made.config.vision_config, made.config.get_text_config()

        def products(part: nn.Module, rows: int) -> int:
            return sum(2 * rows * m.weight.numel() for m in part.modules() if isinstance(m, nn.Linear))

        tower = made.base.model.visual
        mergers = [tower.merger, *tower.deepstack_merger_list]
        expected = (
            2 * patches * tower.patch_embed.proj.weight.numel()
            + products(tower.blocks, patches)
            + sum(products(merger, CELLS) for merger in mergers)
            + vision.depth * 4 * patches**2 * vision.hidden_size
            + products(made.base.model.language_model, columns)
            + text.num_hidden_layers * 4 * columns**2 * text.num_attention_heads * text.head_dim
            + products(made.base.lm_head, 1)
        )
        counted = 1e12 * count(find_way(made, STOCK), lambda: prompt(made, IMAGE, QUESTION), CPU).tflop
        assert counted == pytest.approx(expected, rel=0.01)  # rotary angles are products too

    def test_attention_with_fewer_key_heads_and_other_widths(self):
        assert attention_flops((2, 8, 10, 4), (2, 2, 30, 4), (2, 2, 30, 6)) == 2 * 2 * 8 * 10 * 30 * (4 + 6)

    @pytest.mark.slow
    def test_fewer_tokens_cost_less(self):
        made = model()
        counted = [
            count(find_way(made, mode), lambda: prompt(made, IMAGE, QUESTION), CPU)
            for mode in (STOCK, "full", "random@64", "random@8")
        ]
        stock, full, some, few = (one.tflop for one in counted)
        assert few < some < full == stock
        stock, full, some, few = (one.gbyte for one in counted)
        assert few < some < full == stock
        assert all(one.peak_mb > 0 for one in counted)

    def test_bytes_are_the_operands_and_the_result(self):
        x, layer = torch.zeros(10, 8), nn.Linear(8, 6)
        with torch.no_grad(), ByteCounter() as moved:
            layer(x).exp()  # 10 x 8 read, weights 6 x 8 and bias 6 read, 10 x 6 written; no product in exp
        assert moved.total == 4 * (80 + 48 + 6 + 60)
        q, k = torch.zeros(1, 2, 5, 4), torch.zeros(1, 2, 9, 4)
        with ByteCounter() as moved:
            nn.functional.scaled_dot_product_attention(q, k, k)
        assert moved.total >= 4 * (40 + 72 + 72 + 40)  # a kernel may also write a row of sums

    @pytest.mark.slow
    def test_reading_the_weights_is_the_floor_of_the_bytes(self):
        made = model()
        few = count(find_way(made, "sparse@1"), lambda: prompt(made, IMAGE, QUESTION), CPU)
        layers = made.base.model.language_model.layers
        weights = sum(p.numel() * p.element_size() for p in layers.parameters())
        assert few.gbyte * 1e9 > weights


class TestTime:
    def test_stages_of_a_way_hold_what_it_does_and_nothing_else(self):
        made = model()
        expected = {
            STOCK: {"process", "encode", "prefill"},
            "full": {"process", "encode", "prefill"},
            "prune@8": {"process", "select", "encode", "prefill"},
            "sparse@8": {"process", "select", "encode", "prefill"},
            "sparse gaze@8": {"process", "gestalt", "select", "encode", "prefill"},
            "compress": {"process", "gestalt", "prefill"},
            "visionzip@8": {"process", "select", "encode", "prefill"},
        }
        for mode, stages in expected.items():
            times = measure(find_way(made, mode), lambda: prompt(made, IMAGE, QUESTION), CPU)
            assert tuple(times) == STAGES
            assert {stage for stage, ms in times.items() if ms > 0} == stages

    def test_the_encoder_is_watched_during_the_block_alone(self):
        made = model()
        tower = made.base.model.visual
        before = len(tower._forward_hooks), len(tower._forward_pre_hooks)
        arrive(made, STOCK)
        assert (len(tower._forward_hooks), len(tower._forward_pre_hooks)) == before

    def test_rounds_go_forwards_and_backwards_after_one_unmeasured(self, monkeypatch):
        ran: list[str] = []
        names = {}

        def note(way, start, device):
            ran.append(names[way])
            return dict.fromkeys(STAGES, 1.0)

        def named(made, mode, scorer):
            way = lambda inputs, watch: Arrival(torch.zeros(1, 2), 3)  # noqa: E731
            names[way] = mode
            return way

        monkeypatch.setattr(benches, "find_way", named)
        monkeypatch.setattr(benches, "measure", note)
        monkeypatch.setattr(
            benches, "count", lambda *_: Counted(1.0, 1.0, 1.0, Arrival(torch.zeros(1, 2), 3))
        )
        rows = bench(model(), IMAGE, QUESTION, ("a", "b", "c", "a"), 3)
        assert ran == ["a", "b", "c", "c", "b", "a", "a", "b", "c"]
        assert [r.mode for r in rows] == ["a", "b", "c"]
        assert rows[0].rounds == [5.0] * 3

    def test_medians_and_what_counts_as_choosing(self):
        rounds = [dict.fromkeys(STAGES, value) for value in (1.0, 5.0, 2.0)]
        for ran, choosing in (("sparse", 4.0), ("saccade", 2.0), ("compress", 2.0), ("prune", 4.0)):
            made = summarise("any", 4, Counted(1.5, 0.5, 7.0, Arrival(torch.zeros(1), 9.0, ran)), rounds)
            assert (made.ms, made.rounds, made.select) == (10.0, [5.0, 25.0, 10.0], choosing)
            assert made.stages == dict.fromkeys(STAGES, 2.0)
            assert (made.batch, made.tokens, made.tflop, made.gbyte, made.peak_mb) == (4, 9.0, 1.5, 0.5, 7.0)

    def test_comparison_with_stock(self):
        stock, ours = compare([row(STOCK), row("sparse@8", ms=40.0, tflop=0.25, gbyte=0.5, select=8.0)])
        assert (stock.speed, stock.flop_ratio, stock.byte_ratio, stock.of_limit) == (1.0, 1.0, 1.0, 1.0)
        assert (ours.speed, ours.flop_ratio, ours.byte_ratio, ours.of_limit) == (2.5, 4.0, 2.0, 0.625)
        fewer = compare([row(STOCK), row("sparse@8", ms=40.0, tflop=0.5, gbyte=0.2)])[1]
        assert (fewer.flop_ratio, fewer.byte_ratio, fewer.of_limit) == (2.0, 5.0, 0.5)
        assert ours.select_share == pytest.approx(0.1)  # of 100 ms less 20 of processing
        assert compare([row("full")])[0].speed is None


class TestBench:
    @pytest.mark.slow
    def test_a_way_that_cannot_run_is_left_out_with_its_reason(self, caplog):
        with caplog.at_level(logging.WARNING, logger="arr_coc"):
            # The guide alone, asked what kind of question it is, costs more than this tiny model saves.
            rows = bench(model(relevance="trained"), IMAGE, QUESTION, (STOCK, "prune@999", "prune@8"), 1)
        assert [r.mode for r in rows] == [STOCK, "prune@8"]
        assert "prune@999 is left out: budget 999 exceeds" in caplog.text
        assert rows[1].flop_ratio is not None
        assert rows[1].flop_ratio > 1
        assert rows[1].ms == pytest.approx(sum(rows[1].stages.values()))

    def test_nothing_to_run(self):
        with pytest.raises(ValueError, match="none of prune@999 can run"):
            bench(model(), IMAGE, QUESTION, ("prune@999",), 1)
        with pytest.raises(ValueError, match="0 rounds"):
            bench(model(), IMAGE, QUESTION, rounds=0)


class TestCommand:
    def run(self, tmp_path: Path, *options: str):
        save_tiny("qwen3_vl", tmp_path / "base")
        IMAGE.save(tmp_path / "page.png")
        app = typer.Typer()
        app.command()(command)
        given = ["--model", str(tmp_path / "base"), "--image", str(tmp_path / "page.png"), *options]
        result = CliRunner().invoke(app, [*given, "--modes", "stock, sparse@8", "--rounds", "1"])
        assert result.exit_code == 0, result.output
        return result.stdout

    @pytest.mark.slow
    def test_json_has_the_circumstances_and_every_row(self, tmp_path):
        made = json.loads(self.run(tmp_path, "--json"))
        assert made["circumstances"]["visual tokens"] == CELLS
        assert made["circumstances"]["rounds"] == 1
        assert [r["mode"] for r in made["rows"]] == [STOCK, "sparse@8"]
        assert made["rows"][1]["tokens"] == 8
        assert set(made["rows"][0]["stages"]) == set(STAGES)

    @pytest.mark.slow
    def test_a_line_per_way(self, tmp_path):
        lines = self.run(tmp_path).splitlines()
        head = next(line for line in lines if "x stock" in line)
        for column in ("tokens", *STAGES, "TFLOP", "GB", "of limit", "peak MiB"):
            assert column in head
        assert sum(line.startswith(("stock", "sparse@8")) for line in lines) == 2
