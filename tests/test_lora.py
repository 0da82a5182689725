"""The LoRAs beside the layer: they start as nothing, come back as saved, and step aside for the stock model.

Run: pytest tests/test_lora.py
"""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForImageTextToText, PreTrainedModel

from arr_coc.config import ARRCOCConfig
from arr_coc.layer import ARRCOCLayer
from arr_coc.lora import (
    COARSE,
    CONFIG_NAME,
    OWN,
    PARTIAL,
    add_lora,
    add_partial,
    has_lora,
    load_lora,
    lora_for,
    save_lora,
    without_lora,
)
from arr_coc.model import ARRCOCModel
from arr_coc.prepare import MODES
from arr_coc.stem import Stem
from eyes import set_constants
from tiny import FAMILIES, WIDTH, picture, prompts, tiny

WEIGHTS = "adapter_model.safetensors"
WANTED = {
    "full": (),
    "prune": (OWN,),
    "sparse": (PARTIAL, OWN),
    "saccade": (PARTIAL, COARSE),
    "compress": (OWN,),
    "weight": (OWN,),
}
"""What is at work in each mode, of what there is; in "saccade" `OWN` stands in for a missing `COARSE`."""
EVERY = (OWN, PARTIAL, COARSE)
SOME = pytest.mark.parametrize("family", ["qwen3_vl", "llava"])


def stock(family: str = "qwen3_vl") -> PreTrainedModel:
    """A tiny model of its own: an adapter stays in the model it is put into."""
    return copy.deepcopy(tiny(family).model)


@torch.no_grad()
def logits(model: PreTrainedModel, family: str = "qwen3_vl") -> Tensor:
    return model(**prompts(tiny(family), [("What?", [picture(1)])])).logits


def learned(family: str = "qwen3_vl", rank: int = 2, names: tuple[str, ...] = (OWN,)) -> PreTrainedModel:
    """A tiny model whose adapters have learned something, the same every time, whatever others there are."""
    model = stock(family)
    if PARTIAL in names:
        add_partial(model, rank)
        for name in {PARTIAL, COARSE} - set(names):
            model.delete_adapter(name)
    if OWN in names:
        add_lora(model, rank)
    for name in names:
        generator = torch.Generator().manual_seed(len(name))
        with torch.no_grad():
            for place, parameter in model.named_parameters():
                if place.endswith((f"lora_A.{name}.weight", f"lora_B.{name}.weight")):
                    parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    with lora_for(model, "prune"):  # afterwards as outside of every block
        return model


def by_mode(model: PreTrainedModel, family: str = "qwen3_vl") -> dict[str, Tensor]:
    """The logits of one prompt with the adapters of each mode at work."""
    found = {}
    for mode in MODES:
        with lora_for(model, mode):
            found[mode] = logits(model, family)
    return found


def learning(model: PreTrainedModel) -> set[str]:
    return {name for name, parameter in model.named_parameters() if parameter.requires_grad}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lora")
    save_lora(learned(), folder)
    return folder


@pytest.mark.parametrize("family", FAMILIES)
class TestEveryFamily:
    def test_a_new_adapter_changes_nothing_and_alone_learns(self, family: str) -> None:
        model = stock(family)
        add_lora(model, 2)
        assert has_lora(model)
        assert torch.equal(logits(model, family), logits(tiny(family).model, family))
        free = {name for name, p in model.named_parameters() if p.requires_grad}
        assert free == {name for name, _ in model.named_parameters() if "lora_" in name}
        assert free
        assert all("language_model" in name for name in free)  # never the vision tower

    def test_without_it_the_model_is_stock_to_the_last_bit(self, family: str) -> None:
        model, plain = learned(family), logits(tiny(family).model, family)
        adapted = logits(model, family)
        assert (adapted - plain).abs().max() > 0.01
        with without_lora(model):
            assert torch.equal(logits(model, family), plain)
        with without_lora(model, off=False):
            assert torch.equal(logits(model, family), adapted)
        with pytest.raises(KeyError), without_lora(model):
            raise KeyError("inside")
        assert torch.equal(logits(model, family), adapted)  # it came back, also after an error

    def test_it_comes_back_as_saved(self, family: str, tmp_path: Path) -> None:
        model, again = learned(family), stock(family)
        save_lora(model, tmp_path)
        load_lora(again, tmp_path)
        assert torch.equal(logits(again, family), logits(model, family))
        assert not any(p.requires_grad for p in again.parameters())
        weights = load_file(tmp_path / WEIGHTS)
        assert sum(w.numel() for w in weights.values()) == sum(
            p.numel() for name, p in model.named_parameters() if "lora_" in name
        )
        assert all("lora_" in name for name in weights)  # never the base


class TestSeveral:
    @pytest.mark.parametrize("family", FAMILIES)
    def test_each_adapts_its_half(self, family: str) -> None:
        model = stock(family)
        add_partial(model, 2)
        assert [has_lora(model, name) for name in EVERY] == [False, True, True]
        places = [name for name, _ in model.named_parameters() if "lora_A" in name]
        tower = "visual" if "qwen" in family else "vision_tower"
        for name, half in ((PARTIAL, tower), (COARSE, "language_model")):
            own = [place for place in places if f".{name}." in place]
            assert all(half in place for place in own)
            assert {"mlp", "attn"} <= {
                part.removeprefix("self_") for place in own for part in place.split(".")
            }
        for mode, found in by_mode(model, family).items():
            assert torch.equal(found, logits(tiny(family).model, family)), mode  # nothing was learned yet

    @SOME
    def test_each_mode_has_its_adapters(self, family: str) -> None:
        plain = logits(tiny(family).model, family)
        for names in ((OWN,), (PARTIAL, COARSE), (OWN, PARTIAL), EVERY):
            model = learned(family, names=names)
            found = by_mode(model, family)
            for mode, wanted in WANTED.items():
                chosen = [name for name in wanted if name in names]
                if mode == "saccade" and COARSE not in names:
                    chosen.append(OWN)
                model.enable_adapters() if chosen else model.disable_adapters()
                model.set_adapter(chosen or [names[0]])
                assert torch.equal(found[mode], logits(model, family)), (names, mode)
                assert (not chosen) == torch.equal(found[mode], plain), (names, mode)

    @SOME
    def test_all_come_back_as_saved(self, family: str, tmp_path: Path) -> None:
        for names in ((PARTIAL, COARSE), EVERY):
            folder = tmp_path / str(len(names))
            model, again = learned(family, names=names).requires_grad_(False), stock(family)
            expected = by_mode(model, family)
            save_lora(model, folder)
            places = {folder if name == OWN else folder / name for name in names}
            assert {path.parent for path in folder.rglob(WEIGHTS)} == places
            load_lora(again, folder)
            for mode, found in by_mode(again, family).items():
                assert torch.equal(found, expected[mode]), (names, mode)
            assert torch.equal(logits(again, family), expected["prune"])  # outside of every block
            assert not learning(again)
            for path in folder.rglob(CONFIG_NAME):
                settings = json.loads(path.read_text())
                assert settings["base_model_name_or_path"] is None
                assert "/" not in json.dumps(settings)  # nobody's disk

    def test_saving_changes_nothing(self, tmp_path: Path) -> None:
        for names in ((OWN,), (PARTIAL, COARSE), EVERY):
            model = learned(names=names).requires_grad_(False)
            before = by_mode(model) | {"outside": logits(model)}
            save_lora(model, tmp_path / "-".join(names))
            assert not learning(model)
            assert torch.equal(logits(model), before.pop("outside")), names
            for mode, found in by_mode(model).items():
                assert torch.equal(found, before[mode]), (names, mode)


class TestWhatLearns:
    def test_frozen_adapters_stay_frozen_in_every_mode(self) -> None:
        model = learned(names=EVERY).requires_grad_(False)
        for mode in MODES:
            with lora_for(model, mode):
                assert not learning(model), mode
            assert not learning(model), mode

    @pytest.mark.parametrize("names", [(OWN,), (PARTIAL, COARSE)])
    def test_what_learns_goes_on_learning(self, names: tuple[str, ...]) -> None:
        model = stock()
        (add_lora if OWN in names else add_partial)(model, 2)
        before = learning(model)
        assert all(any(f".{name}." in place for place in before) for name in names)
        assert before
        for mode in ("full", "sparse", "prune"):
            with lora_for(model, mode):
                pass
            assert learning(model) == before, mode


class TestInTheModel:
    """Which adapters are at work in a call, whatever ran before."""

    IMAGE = picture(1, (72, 56))

    @pytest.fixture(autouse=True)
    def coarsely(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Gestalts of at most 9 tokens, and images that are large enough to have one."""
        set_constants(monkeypatch)

    @staticmethod
    def around(base: PreTrainedModel, family: str = "qwen3_vl") -> ARRCOCModel:
        layer = ARRCOCLayer(ARRCOCConfig(dim=WIDTH))
        layer.trained = True
        stem = Stem(WIDTH, width=16, blocks=1)
        return ARRCOCModel(base, tiny(family).processor, layer, stem=stem, budget=9, strict=True)

    def answers(self, model: ARRCOCModel, modes: tuple[str, ...] = MODES) -> list[str]:
        session = model.session(self.IMAGE)
        return [session.ask("What?", mode=mode, max_new_tokens=5).text for mode in modes]

    def test_full_is_stock_and_the_others_have_their_adapter(self) -> None:
        full, plain = self.around(learned(names=EVERY)), self.around(stock())
        inputs = prompts(tiny("qwen3_vl"), [("What?", [self.IMAGE])])
        for mode, names in WANTED.items():
            like = self.around(learned(names=names)) if names else plain
            with torch.no_grad():
                found, expected = (model(**inputs, mode=mode).logits for model in (full, like))
                assert torch.equal(found, expected), mode
                assert (mode == "full") == torch.equal(found, plain(**inputs, mode=mode).logits), mode

    def test_a_session_does_not_mix_what_adapters_let_it_see(self) -> None:
        """What the tower encoded with one adapter is not what it would encode with another."""
        model = self.around(learned(names=EVERY))
        alone = {mode: self.answers(model, (mode,))[0] for mode in MODES}
        for order in (MODES, MODES[::-1]):
            assert dict(zip(order, self.answers(model, order), strict=True)) == alone
        session = model.session(self.IMAGE)
        for mode in ("saccade", "compress", "prune", "full", "saccade"):
            name = None if mode in ("prune", "full") else "pool4"
            shared = session.ask("What?", mode=mode, gestalt=name, max_new_tokens=5)
            fresh = model.ask(self.IMAGE, "What?", mode=mode, gestalt=name, max_new_tokens=5)
            assert shared.text == fresh.text, mode

    @torch.no_grad()
    def test_from_half_of_the_cells_on_the_lora_for_parts_is_not_at_work(self) -> None:
        """With all of them: to the last bit what mode "prune" gives, stock but for an adapter of its own."""
        model, plain = self.around(learned(names=EVERY)), self.around(learned(names=(OWN,)))
        inputs = prompts(tiny("qwen3_vl"), [("What?", [self.IMAGE])])
        everything = model(**inputs, mode="prune", budget=1.0).logits
        assert torch.equal(model(**inputs, mode="sparse", budget=1.0).logits, everything)
        for kept, same in ((31, False), (32, True), (62, True)):  # of 63
            found, expected = (m(**inputs, mode="sparse", budget=kept).logits for m in (model, plain))
            assert torch.equal(found, expected) == same, kept

    @torch.no_grad()
    def test_each_image_goes_by_its_own_share_whatever_else_is_in_the_batch(self) -> None:
        model = self.around(learned(names=EVERY))
        small, large = picture(3, (24, 24)), self.IMAGE  # 9 of 9 cells kept, 9 of 63
        rows = [("What?", [small]), ("What?", [large])]
        alone = [model(**prompts(tiny("qwen3_vl"), [row]), mode="sparse").logits[0, -1] for row in rows]
        both = model(**prompts(tiny("qwen3_vl"), rows), mode="sparse").logits[:, -1]
        for found, expected in zip(both, alone, strict=True):
            torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)

    @torch.no_grad()
    def test_families_that_prune_instead_do_so_as_in_prune(self) -> None:
        model = self.around(learned("llava", names=EVERY), "llava")
        inputs = prompts(tiny("llava"), [("What?", [self.IMAGE])])
        pruned = model(**inputs, mode="prune").logits
        for mode in ("sparse", "saccade"):
            assert torch.equal(model(**inputs, mode=mode).logits, pruned)

    @torch.no_grad()
    def test_after_a_failure_all_tokens_are_encoded_and_read_as_in_prune(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        model = self.around(learned(names=EVERY))
        model.strict = False
        inputs = prompts(tiny("qwen3_vl"), [("What?", [self.IMAGE])])
        everything = model(**inputs, mode="prune", budget=1.0).logits
        monkeypatch.setattr(model.stem, "forward", None)
        session = model.session(self.IMAGE)
        for mode in ("sparse", "saccade"):
            out = model(**inputs, mode=mode)
            assert out.fallback
            assert torch.equal(out.logits, everything)
            answer = session.ask("What?", mode=mode, max_new_tokens=5)
            whole = session.ask("What?", mode="prune", budget=1.0, max_new_tokens=5)
            assert (answer.fallback, answer.mode, answer.text) == (True, "prune", whole.text)

    def test_everything_learned_comes_back(self, tmp_path: Path) -> None:
        model = self.around(learned(names=EVERY))
        expected = self.answers(model)
        model.save_pretrained(tmp_path)
        assert self.answers(model) == expected
        again = ARRCOCModel.wrap(
            stock(), tiny("qwen3_vl").processor, allocator=tmp_path, budget=9, strict=True
        )
        assert again.stem is not None
        assert not learning(again.base)
        looks = [m.look(self.IMAGE, "What?", mode="prune") for m in (model, again)]
        assert torch.equal(looks[0].balanced, looks[1].balanced)
        assert self.answers(again) == expected


def test_rank_is_as_asked() -> None:
    for rank, add in ((1, add_lora), (4, add_lora), (3, add_partial)):
        model = stock()
        add(model, rank)
        assert all(
            rank in p.shape and p.numel() == rank * max(p.shape)
            for name, p in model.named_parameters()
            if "lora_" in name
        )


class TestWithoutAnAdapter:
    def test_nothing_is_saved(self, tmp_path: Path) -> None:
        save_lora(stock(), tmp_path)
        assert list(tmp_path.iterdir()) == []

    def test_nothing_is_loaded_from_a_folder_that_has_none(self, tmp_path: Path) -> None:
        model = stock()
        load_lora(model, tmp_path)
        load_lora(model, tmp_path / "no such folder")
        assert not has_lora(model)
        assert torch.equal(logits(model), logits(tiny("qwen3_vl").model))

    def test_without_is_legal(self) -> None:
        model = stock()
        with without_lora(model):
            assert not has_lora(model)


class TestRefusals:
    @staticmethod
    def refused(model: PreTrainedModel, folder: Path, message: str) -> None:
        with pytest.raises(ValueError, match=rf"{folder.name}' can't be loaded .*{message}") as caught:
            load_lora(model, folder)
        assert "\n" not in str(caught.value)
        assert "use the base model it was trained for" in str(caught.value)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"hidden_size": 64}, "mismatched"),
            ({"num_hidden_layers": 1}, "8 weights are missing or left over, first .*layers.1.self_attn"),
            ({"num_hidden_layers": 3}, "8 weights are missing or left over, first .*layers.2.self_attn"),
        ],
    )
    def test_another_base_model(self, saved: Path, changes: dict[str, int], message: str) -> None:
        config = copy.deepcopy(tiny("qwen3_vl").model.config)
        for name, value in changes.items():
            setattr(config.text_config, name, value)
        config.vision_config.out_hidden_size = config.text_config.hidden_size
        self.refused(AutoModelForImageTextToText.from_config(config), saved, message)

    def test_broken_weights(self, saved: Path, tmp_path: Path) -> None:
        (tmp_path / CONFIG_NAME).write_bytes((saved / CONFIG_NAME).read_bytes())
        self.refused(stock(), tmp_path, WEIGHTS)
        whole = (saved / WEIGHTS).read_bytes()
        (tmp_path / WEIGHTS).write_bytes(whole[: len(whole) // 2])
        self.refused(stock(), tmp_path, "incomplete")

    def test_pickled_weights_are_never_loaded(self, saved: Path, tmp_path: Path) -> None:
        (tmp_path / CONFIG_NAME).write_bytes((saved / CONFIG_NAME).read_bytes())
        torch.save(load_file(saved / WEIGHTS), tmp_path / "adapter_model.bin")
        self.refused(stock(), tmp_path, WEIGHTS)

    def test_a_broken_partial_adapter_is_refused_by_its_folder(self, tmp_path: Path) -> None:
        save_lora(learned(names=EVERY), tmp_path)
        (tmp_path / PARTIAL / WEIGHTS).write_bytes(b"no safetensors at all")
        with pytest.raises(ValueError, match=rf"{PARTIAL}' can't be loaded .*use the base model") as caught:
            load_lora(stock(), tmp_path)
        assert "\n" not in str(caught.value)
        weights = load_file(tmp_path / WEIGHTS)  # those of the other adapter
        save_file(weights, tmp_path / PARTIAL / WEIGHTS)
        self.refused(stock(), tmp_path / PARTIAL, "weights are missing or left over")

    @pytest.mark.parametrize("change", [None, [], {}, {"peft_type": "WHAT"}, {"target_modules": "nothing"}])
    def test_broken_settings(self, saved: Path, tmp_path: Path, change: object) -> None:
        settings = json.loads((saved / CONFIG_NAME).read_text())
        broken = "{" if change is None else json.dumps(settings | change if change else change)
        (tmp_path / CONFIG_NAME).write_text(broken)
        (tmp_path / WEIGHTS).write_bytes((saved / WEIGHTS).read_bytes())
        self.refused(stock(), tmp_path, "")
