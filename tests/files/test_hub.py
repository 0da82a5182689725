"""The Hub: what goes there and comes back, against a stand-in of its HTTP calls on this machine."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants
from safetensors.torch import load_file, save_file

from arr_coc.choose import layer as layer_files
from arr_coc.files.hub import upload
from arr_coc.files.paths import CONFIG_NAME
from arr_coc.model import ARRCOCModel
from arr_coc.store.checkpoint import ALLOCATOR_FILES, WEIGHTS_NAME, base_revision
from eyes import build
from stand_in import TOKEN, Hub, serve
from tiny import picture

IMAGE = picture(1, (48, 40))
QUESTION = "What is the number on the door?"
BASE, MINE = "someone/tiny-vl", "me/mine"
WRONG = "hf_theWrongToken"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    with serve(monkeypatch, tmp_path / "cache") as hub:
        yield hub


@pytest.fixture
def model(hub: Hub, base: Path) -> ARRCOCModel:
    """A model with a stem, whose base comes from the Hub."""
    hub.add_folder(BASE, base)
    loaded = ARRCOCModel.from_pretrained(BASE, budget=7)
    made = build()
    return ARRCOCModel(
        loaded.base, loaded.processor, made.layer, stem=made.stem, budget=7, strict=True, base_name=BASE
    )


def text_of(model: ARRCOCModel) -> list[str]:
    return [
        model.ask(IMAGE, QUESTION, mode=mode, max_new_tokens=6).text for mode in ("full", "prune", "sparse")
    ]


def refused(call: object, *arguments: object, match: str, **options: object) -> str:
    with pytest.raises(ValueError, match=match) as error:
        call(*arguments, **options)  # type: ignore[operator]
    text = str(error.value)
    assert "\n" not in text
    assert "hf_" not in text
    return text


class TestThereAndBack:
    @pytest.mark.slow
    def test_the_same_answers(self, hub: Hub, model: ARRCOCModel) -> None:
        address = model.push_to_hub(MINE, token=TOKEN)
        assert address == f"{hub.url}/{MINE}/commit/{hub.commits[MINE][-1][0]}"
        again = ARRCOCModel.from_pretrained(MINE, budget=7, strict=True)
        assert again.base_name == BASE
        assert again.layer.trained
        assert text_of(again) == text_of(model)
        looks = [m.look(IMAGE, QUESTION, mode="sparse").balanced for m in (model, again)]
        assert torch.allclose(*looks, atol=0.02)  # a stem is stored in bfloat16
        given = ARRCOCModel.from_pretrained(BASE, allocator=MINE, budget=7)
        looks = [m.look(IMAGE, QUESTION, mode="prune").balanced for m in (model, given)]
        assert torch.equal(*looks)

    def test_nothing_but_what_was_learned_leaves(
        self, hub: Hub, model: ARRCOCModel, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        save = layer_files.save_layer

        def careless(layer: object, folder: Path, base: dict) -> None:
            save(layer, folder, base)  # type: ignore[arg-type]
            torch.save({}, folder / "arr_coc.bin")
            (folder / "notes.txt").write_text("private")

        monkeypatch.setattr("arr_coc.store.allocator.save_layer", careless)
        model.push_to_hub(MINE, token=TOKEN)
        files = hub.commits[MINE][-1][1]
        assert set(files) == {"README.md", CONFIG_NAME, WEIGHTS_NAME, "stem.safetensors"}
        settings = json.loads(files[CONFIG_NAME])
        assert (settings["base_model"], settings["base_revision"]) == (BASE, hub.commits[BASE][0][0])
        assert files["README.md"].startswith(b"---\nbase_model: someone/tiny-vl\n")
        assert MINE in files["README.md"].decode()
        assert sum(map(len, files.values())) < 600_000

    @pytest.mark.slow
    def test_a_push_replaces_what_was_there(self, hub: Hub, model: ARRCOCModel) -> None:
        model.push_to_hub(MINE, token=TOKEN)
        hub.commit(MINE, hub.commits[MINE][-1][1] | {"mine.txt": b"a file of its owner"})
        ARRCOCModel(model.base, layer=model.layer, base_name=BASE).push_to_hub(MINE, token=TOKEN)
        assert set(hub.commits[MINE][-1][1]) == {"README.md", CONFIG_NAME, WEIGHTS_NAME, "mine.txt"}
        assert ARRCOCModel.from_pretrained(MINE).stem is None
        before = hub.commits[MINE][1][0]
        assert ARRCOCModel.from_pretrained(MINE, revision=before).stem is not None

    def test_private(self, hub: Hub, model: ARRCOCModel, tmp_path: Path) -> None:
        model.push_to_hub(MINE, private=True, token=TOKEN)
        refused(ARRCOCModel.from_pretrained, MINE, match="doesn't exist on the Hub .*hf auth login")
        (tmp_path / "cache" / "token").write_text(TOKEN)  # where `hf auth login` puts it
        assert ARRCOCModel.from_pretrained(MINE).stem is not None


class TestRevision:
    @pytest.mark.slow
    def test_the_base_is_loaded_as_it_was(self, hub: Hub, model: ARRCOCModel, base: Path) -> None:
        """The base's owner changes its weights after the allocator was trained."""
        model.push_to_hub(MINE, token=TOKEN)
        first, files = hub.commits[BASE][0]
        weights = {name: 0.5 * value for name, value in load_file(base / "model.safetensors").items()}
        save_file(weights, base.parent / "changed.safetensors", metadata={"format": "pt"})
        changed = (base.parent / "changed.safetensors").read_bytes()
        second = hub.commit(BASE, files | {"model.safetensors": changed})
        assert base_revision(ARRCOCModel.from_pretrained(BASE).base) == second
        for again in (
            ARRCOCModel.from_pretrained(MINE, budget=7),
            ARRCOCModel.from_pretrained(BASE, allocator=MINE, budget=7),
        ):
            assert base_revision(again.base) == first
            assert text_of(again) == text_of(model)

    def test_an_allocator_on_another_commit_is_told(
        self, hub: Hub, model: ARRCOCModel, caplog: pytest.LogCaptureFixture
    ) -> None:
        model.push_to_hub(MINE, token=TOKEN)
        second = hub.commit(BASE, hub.commits[BASE][0][1] | {"README.md": b"new"})
        with caplog.at_level(logging.WARNING):
            ARRCOCModel.from_pretrained(BASE, allocator=MINE, revision=second)
        assert f"and this is revision {second[:12]}" in caplog.text

    def test_refusals(self, hub: Hub, model: ARRCOCModel, base: Path) -> None:
        refused(
            ARRCOCModel.from_pretrained,
            BASE,
            revision="v9",
            match="'someone/tiny-vl' at revision 'v9' can't be reached or doesn't exist",
        )
        refused(ARRCOCModel.from_pretrained, base, revision="main", match="revision 'main' is of .* leave it")
        refused(ARRCOCModel.from_pretrained, revision="main", match="which 'bundled' is not")

    @pytest.mark.slow
    def test_no_network_but_a_cache(
        self, hub: Hub, model: ARRCOCModel, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        model.push_to_hub(MINE, token=TOKEN)
        expected = text_of(ARRCOCModel.from_pretrained(MINE, budget=7))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
        calls = len(hub.calls)
        assert text_of(ARRCOCModel.from_pretrained(MINE, budget=7)) == expected
        assert not ARRCOCModel.from_pretrained(BASE).layer.trained
        assert len(hub.calls) == calls


class TestRefusals:
    """By a model of the same shape that was never on the Hub: nothing has to be loaded from there."""

    def test_a_wrong_token(self, hub: Hub, caplog: pytest.LogCaptureFixture) -> None:
        model = build(base_name=BASE)
        with caplog.at_level(logging.DEBUG):
            text = refused(model.push_to_hub, MINE, token=WRONG, match="^'me/mine' can't be uploaded .*401")
            assert text.endswith("log in with `hf auth login`, or give a token that may write there")
            assert MINE not in hub.commits
            model.push_to_hub(MINE, token=TOKEN)
            refused(model.push_to_hub, MINE, token=WRONG, match="can't be uploaded .*401")
            refused(model.push_to_hub, MINE, match="log in with `hf auth login`")  # none at all
        assert len(hub.commits[MINE]) == 1
        assert not any(token in caplog.text for token in (WRONG, TOKEN))

    def test_out_of_reach(self, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
        refused(build(base_name=BASE).push_to_hub, MINE, token=TOKEN, match="uploaded .* try again later")

    @pytest.mark.parametrize("name", ["me/mine/too", "not a name!", ""])
    def test_no_name(self, name: str) -> None:
        model = build(base_name=BASE)
        refused(model.push_to_hub, name, token=TOKEN, match=r"is no name on the Hub .*; give USER/NAME$")

    def test_a_base_that_nobody_else_has(self, base: Path) -> None:
        model = build(base_name=str(base))
        refused(model.push_to_hub, MINE, token=TOKEN, match="is on this disk alone.*set model.base_name")

    def test_no_such_model(self, hub: Hub) -> None:
        refused(ARRCOCModel.from_pretrained, "nobody/nothing", match="doesn't exist on the Hub .*local model")

    def test_a_pickle_on_the_hub_is_not_even_fetched(self, hub: Hub, base: Path) -> None:
        build(base_name=BASE).push_to_hub(MINE, token=TOKEN)
        files = {name: data for name, data in hub.commits[MINE][-1][1].items() if name != WEIGHTS_NAME}
        hub.commit(MINE, files | {"arr_coc.bin": b"\x80\x04", "arr_coc.py": b"raise SystemExit"})
        hub.calls.clear()
        match = f"has no {WEIGHTS_NAME}; save it again"
        refused(ARRCOCModel.from_pretrained, base, allocator=MINE, match=match)
        assert not any("arr_coc.bin" in call or ".py" in call for call in hub.calls)

    def test_weights_of_another_shape(self, hub: Hub, base: Path, tmp_path: Path) -> None:
        folder = tmp_path / "spoilt"
        build(base_name=BASE).save_pretrained(folder)
        weights = load_file(folder / WEIGHTS_NAME)
        name = max(weights, key=lambda key: weights[key].numel())
        save_file({**weights, name: weights[name].flatten()}, folder / WEIGHTS_NAME)
        upload(folder, MINE, ALLOCATOR_FILES, token=TOKEN)
        match = f"{WEIGHTS_NAME}' don't fit {CONFIG_NAME}"
        refused(ARRCOCModel.from_pretrained, base, allocator=MINE, match=match)
