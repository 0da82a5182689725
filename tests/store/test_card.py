"""The model card: what it says, what it refuses to say, and what it never shows."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard

from arr_coc.choose.layer import ARRCOCConfig, ARRCOCLayer, read_layer
from arr_coc.model import ARRCOCModel
from arr_coc.seam.lora import COARSE, PARTIAL
from arr_coc.store import checkpoint
from arr_coc.store.allocator import fingerprint
from arr_coc.store.card import MADE, card_file, model_card
from arr_coc_lab.results.files import read_results, write_results
from arr_coc_lab.results.summary import summarise
from each import each
from eyes import build
from tiny import WIDTH, save_tiny

COMMIT = "0123456789abcdef0123456789abcdef01234567"
RIGHT = {"full": 9, "arr-coc@64": 8, "arr-coc sparse@64": 7, "fastv@64": 6, "scope@64": 5, "random@64": 3}
"""How many of ten questions each method answers."""


def result(path: Path, model: ARRCOCModel, **changes: Any) -> Path:
    """A result file of ten questions about five images of a data set in a folder."""
    header = {
        "data": "textvqa:/home/somebody/sets/textvqa",
        "size": 1024,
        "metric": "vqa_accuracy",
        "machine": {"device": "cpu"},
        "weights": {"base": "0", "arr-coc": fingerprint(model.layer)},
    } | changes
    records = [
        {
            "id": str(i),
            "image": str(i % 5),
            "family": "count" if i < 4 else "other",
            "total": 100,
            "score": {name: float(i >= 10 - right) for name, right in RIGHT.items()} | {"oracle@64": 1.0},
            "tokens": {name: 100 if name == "full" else 64 for name in RIGHT},
        }
        for i in range(10)
    ]
    write_results(path, header, records)
    return path


class TestCard:
    def test_metadata(self) -> None:
        model = build(base_name="someone/tiny-vl")
        card = model_card(model, name="me/mine", license="mit")
        assert card.data.to_dict() == {
            "base_model": "someone/tiny-vl",
            "base_model_relation": "adapter",
            "library_name": "arr-coc",
            "license": "mit",
            "pipeline_tag": "image-text-to-text",
            "tags": [
                "arr-coc",
                "visual-token-pruning",
                "relevance-realization",
                "vision-language-model",
                "qwen3_vl",
            ],
        }
        assert 'ARRCOCModel.from_pretrained("me/mine")' in card.text

    def test_commit(self, tmp_path: Path) -> None:
        save_tiny("qwen3_vl", tmp_path)
        model = ARRCOCModel.from_pretrained(tmp_path)
        model.base_name, model.base.config._commit_hash = "someone/tiny-vl", COMMIT
        card = model_card(model, name="me/mine")
        assert f"(commit `{COMMIT[:12]}`)" in card.text
        assert "at the commit it was trained for" in card.text

    def test_what_nobody_said_or_measured(self) -> None:
        text = model_card(build(base_name="someone/tiny-vl"), name="me/mine").text
        assert "on what, its author has not said" in text
        assert "Nothing was measured with these weights" in text
        assert "|--:|\n| full" not in text
        untrained = model_card(build(kind="gaze", base_name="someone/tiny-vl"), name="me/mine").text
        assert "nobody has trained it" in untrained
        assert "## Data\n\n200 pages\n" in model_card(build(), name="a", data="200 pages").text

    def test_what_a_run_wrote_down_is_kept_through_saving_and_loading(self, tmp_path: Path) -> None:
        save_tiny("qwen3_vl", tmp_path / "base")
        model = ARRCOCModel.from_pretrained(tmp_path / "base")
        model.layer.trained = True
        model.layer.trained_on = (
            {"recipe": "relevance", "images": {"world": 1600, "jsonl": 4}, "steps": 800},
        )
        model.save_pretrained(tmp_path / "one")
        again = ARRCOCModel.from_pretrained(tmp_path / "one")
        assert again.layer.trained_on == model.layer.trained_on
        again.layer.trained_on += ({"recipe": "hard", "target": "boxes", "seed": 3},)
        again.save_pretrained(tmp_path / "two")
        text = (tmp_path / "two" / "README.md").read_text()
        assert (
            "1. at most 1,600 drawn pages, at most 4 images of `jsonl`; 800 steps; recipe `relevance`."
            in text
        )
        assert "2. recipe `hard`; taught by `boxes`; seed `3`." in text
        assert "its author has not said" not in text
        assert "## Data\n\nA set of mine." in model_card(again, name="a", data="A set of mine.").text

    @each(
        "records",
        [
            3,
            {"steps": 1},
            ["relevance"],
            [{}] * 33,
            [{"steps": -1}],
            [{"seed": True}],
            [{"recipe": "a`b"}],
            [{"base": "line\nline"}],
            [{"images": {"<b>": 1}}],
            [{"images": [1]}],
        ],
    )
    def test_a_record_that_could_write_into_a_card_is_refused(self, tmp_path: Path, records: Any) -> None:
        build().save_pretrained(tmp_path)
        path = tmp_path / "arr_coc_config.json"
        settings = json.loads(path.read_text())
        path.write_text(json.dumps(settings | {"trained_on": [{"note": "of a later version"}]}))
        assert read_layer(tmp_path).trained_on == ({},)
        path.write_text(json.dumps(settings | {"trained_on": records}))
        with pytest.raises(ValueError, match=r"trained_on .*: leave it out") as refused:
            read_layer(tmp_path)
        assert "\n" not in str(refused.value)

    def test_parts(self, tmp_path: Path) -> None:
        save_tiny("qwen3_vl", tmp_path)
        model = ARRCOCModel.from_pretrained(tmp_path)
        assert "stem.safetensors" not in model_card(model, name="a").text
        for kind in (PARTIAL, COARSE):
            model.loras.add(kind, 2)
        text = model_card(model, name="a").text
        size = sum(p.numel() for p in model.loras.parameters_of(COARSE))
        assert size > 0
        assert "| `coarse/adapter_model.safetensors` | LoRA of the language model, for reading" in text
        assert f"| {size:,} |" in text
        assert "| `adapter_model.safetensors`" not in text

    def test_no_path_of_this_disk(self, base: Path) -> None:
        card = model_card(build(base_name=str(base)), name="mine")
        assert str(base.parent) not in str(card)
        assert card.data.base_model is None

    def test_bundled(self) -> None:
        card = model_card(build(base_name=checkpoint.BUNDLED_NAME), name="mine")
        assert card.data.base_model is None
        assert "wrong about photographs" in card.text

    @each(("budget", "text"), [(64, "64 of them"), (0.25, "25% of them"), ("auto", "64 to 400 of them")])
    def test_budget(self, budget: Any, text: str) -> None:
        assert f"reads: {text}" in model_card(build(budget=budget), name="a").text


class TestFigures:
    @pytest.mark.slow
    @pytest.mark.parametrize("name", ["r.jsonl", "r.jsonl.gz", "r.json"])
    def test_from_a_result_file(self, tmp_path: Path, name: str) -> None:
        model = build(base_name="someone/tiny-vl")
        path = result(tmp_path / "r.jsonl.gz", model)
        if name == "r.jsonl":
            path = result(tmp_path / name, model)
        elif name == "r.json":
            path = tmp_path / name
            path.write_text(json.dumps(summarise(*read_results(tmp_path / "r.jsonl.gz"))))
        text = model_card(model, name="me/mine", results=[path]).text
        assert "10 questions about 5 images (`textvqa`), vqa accuracy with its 95 % interval:" in text
        shown = [line.split("|")[1].strip() for line in text.splitlines() if "% (" in line]
        assert shown == ["full", "**arr-coc@64**", "**arr-coc sparse@64**", "fastv@64", "random@64"]
        assert "80.0% (" in text
        assert (
            "Weakest: arr-coc sparse@64 keeps 33.3% of the score of all tokens on `count` questions." in text
        )
        assert "somebody" not in text
        assert "Nothing was measured" not in text

    @pytest.mark.slow
    def test_of_other_weights(self, tmp_path: Path) -> None:
        model = build()
        other = ARRCOCModel(model.base, layer=ARRCOCLayer(ARRCOCConfig(dim=WIDTH)))
        path = result(tmp_path / "r.jsonl", other)
        with pytest.raises(ValueError, match=r"r\.jsonl' was measured with other weights than these: leave"):
            model.save_pretrained(tmp_path / "mine", results=[path])
        assert not (tmp_path / "mine").exists()
        without = result(tmp_path / "old.jsonl", model, weights={})
        with pytest.raises(ValueError, match="other weights"):
            model_card(model, name="a", results=[without])

    @pytest.mark.slow
    @pytest.mark.parametrize("missing", ["data", "size"])
    def test_a_header_that_lacks_something(self, tmp_path: Path, missing: str) -> None:
        model = build()
        path = result(tmp_path / "r.jsonl", model)
        header, records = read_results(path)
        write_results(path, {name: value for name, value in header.items() if name != missing}, records)
        with pytest.raises(ValueError, match=r"r\.jsonl' lacks data or size in its header: measure"):
            model_card(model, name="a", results=[path])

    @each("content", ["{", "[]", '{"header": {}}', "\x80"])
    def test_no_result(self, tmp_path: Path, content: str) -> None:
        (tmp_path / "r.json").write_text(content, encoding="latin-1")
        with pytest.raises(ValueError, match=r"r\.json' can't be read \(.+\): give a file that arr-coc eval"):
            model_card(build(), name="a", results=[tmp_path / "r.json"])
        with pytest.raises(ValueError, match=r"none\.json' can't be read"):
            model_card(build(), name="a", results=[tmp_path / "none.json"])

    def test_the_figures_of_the_bundled_allocator(self) -> None:
        """They are of the weights that are bundled now."""
        folder = Path(__file__).parents[2] / "runs" / "results"
        base, _ = checkpoint.load_base(checkpoint.BUNDLED_NAME)
        layer = checkpoint.load_layer(checkpoint.BUNDLED_ALLOCATOR, base)
        for name in ("study", "sparse", "saccade"):
            header = json.loads((folder / f"{name}.json").read_text())["header"]
            assert header["weights"]["arr-coc"] == fingerprint(layer), name


class TestSaving:
    def test_read_back(self, tmp_path: Path) -> None:
        build(base_name="someone/tiny-vl").save_pretrained(
            tmp_path / "mine", data="Pages: some | odd\n---\ntext"
        )
        card = ModelCard.load(tmp_path / "mine" / "README.md")
        assert card.data.base_model == "someone/tiny-vl"
        assert card.text.lstrip().startswith(f"{MADE}\n\n# mine\n")

    def test_saved_again(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        first, second = (model_card(build(), name="a", data=data) for data in ("One.", "Two."))
        for card in (first, second):
            for name, content in card_file(card, tmp_path).items():
                (tmp_path / name).write_bytes(content)
        assert "Two." in (tmp_path / "README.md").read_text()
        (tmp_path / "README.md").write_text("By hand.")
        with caplog.at_level(logging.WARNING):
            assert card_file(first, tmp_path) == {}
        assert "stays as it is" in caplog.text
