"""Relevance "ground": noun phrases become boxes of a detector, and those become cells."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from arr_coc.relevance.conformance import LAWS, SourceScene
from arr_coc.relevance.ground import MAX_FOUND, GroundSource, noun_phrases, open_ground
from arr_coc.relevance.source import FLOOR
from arr_coc.relevance.sums import open_relevance
from each import each
from tiny_families import words

KINDS = ("mm-grounding-dino", "grounding-dino", "omdet-turbo", "owlv2", "owlvit")
SWIN = {"image_size": 32, "patch_size": 2, "embed_dim": 8, "depths": [1, 1, 1, 1], "num_heads": [1, 1, 1, 1]}
SIZES = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}


def bert() -> Any:
    """A BERT tokenizer of single letters and marks."""
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    marks = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", "?"]
    vocabulary = {token: i for i, token in enumerate([*marks, *letters, *("##" + one for one in letters)])}
    return transformers.BertTokenizer(vocab=vocabulary)


def dino(name: str) -> tuple[Any, Any]:
    config = getattr(transformers, f"{name}Config")(
        backbone_config=transformers.SwinConfig(**SWIN, out_features=["stage2", "stage3", "stage4"]),
        text_config=transformers.BertConfig(vocab_size=80, max_position_embeddings=256, **SIZES),
        d_model=32, encoder_layers=1, decoder_layers=2, encoder_attention_heads=2, decoder_attention_heads=2,
        encoder_ffn_dim=24, decoder_ffn_dim=24, num_queries=12,
    )  # fmt: skip
    pictures = transformers.GroundingDinoImageProcessor(size={"shortest_edge": 32, "longest_edge": 64})
    model = getattr(transformers, f"{name}ForObjectDetection")(config)
    return model, transformers.GroundingDinoProcessor(pictures, bert())


def omdet() -> tuple[Any, Any]:
    tokens = words()
    text = transformers.CLIPTextConfig(
        vocab_size=len(tokens), max_position_embeddings=77, projection_dim=24,
        eos_token_id=tokens.eos_token_id, pad_token_id=tokens.pad_token_id, bos_token_id=None,
        **SIZES | {"hidden_size": 24},
    )  # fmt: skip
    config = transformers.OmDetTurboConfig(
        backbone_config=transformers.SwinConfig(**SWIN, out_features=["stage2", "stage3", "stage4"]),
        text_config=text, use_timm_backbone=False, apply_layernorm_after_vision_backbone=False,
        image_size=64, encoder_hidden_dim=16, decoder_hidden_dim=16, class_embed_dim=24,
        text_projection_in_dim=24, text_projection_out_dim=24, task_encoder_hidden_dim=24,
        vision_features_channels=[16, 16, 16], encoder_in_channels=[16, 32, 64], num_queries=12,
        encoder_dim_feedforward=24, decoder_dim_feedforward=24, encoder_attention_heads=2,
        decoder_num_heads=2, decoder_num_layers=1, num_projection_layers=1, encoder_layers=1,
        backbone_feat_channels=[16, 16, 16],
    )  # fmt: skip
    pictures = transformers.DetrImageProcessor(size={"height": 64, "width": 64}, do_pad=False)
    return transformers.OmDetTurboForObjectDetection(config), transformers.OmDetTurboProcessor(
        pictures, tokens
    )


def owl(name: str) -> tuple[Any, Any]:
    tokens = words()
    text = {
        "vocab_size": len(tokens),
        "max_position_embeddings": 16,
        "pad_token_id": tokens.pad_token_id,
        **SIZES,
    }
    vision = {"image_size": 32, "patch_size": 8, **SIZES}
    config = getattr(transformers, f"{name}Config")(text_config=text, vision_config=vision, projection_dim=16)
    size = {"height": 32, "width": 32}
    pictures = getattr(transformers, f"{name}ImageProcessor")(size=size)
    processor = getattr(transformers, f"{name}Processor")
    return getattr(transformers, f"{name}ForObjectDetection")(config), processor(pictures, tokens)


@cache
def built(kind: str) -> tuple[Any, Any]:
    with torch.random.fork_rng():
        torch.manual_seed(5)
        if kind == "omdet-turbo":
            return omdet()
        if kind.startswith("owl"):
            return owl({"owlv2": "Owlv2", "owlvit": "OwlViT"}[kind])
        return dino({"mm-grounding-dino": "MMGroundingDino", "grounding-dino": "GroundingDino"}[kind])


def noise(seed: int) -> Tensor:
    return torch.rand(3, 48, 64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("kind", KINDS)
def test_random_weights_keep_all_laws_that_ask_for_no_knowledge(kind: str) -> None:
    source = GroundSource(*built(kind))
    scenes = [
        SourceScene(noise(seed), question, (0, 0, 9, 9))
        for seed, question in enumerate(("Where is the red dog?", "Is the cat wet?"))
    ]
    laws = ("is described", "keeps views", "fills grids", "repeats", "remembers nothing")
    assert not [what for law in laws for what in LAWS[law](source, scenes)]
    coupling = source.couple(source.view(noise(0)), "Where is the red dog?", (6, 8))
    assert 0 < len(coupling.findings) <= MAX_FOUND
    assert all(0 <= side <= 1 for one in coupling.findings for side in one.box)
    assert coupling.confidence == pytest.approx(coupling.findings[0].probability)


@each(
    ("question", "phrases"),
    [
        ("Where is the red bicycle?", ["red bicycle"]),
        ("What colour is the dog's collar?", ["dog collar"]),
        ("How many people are there in the picture?", ["people"]),
        ("Is the man next to the blue car smiling?", ["man next", "blue car smiling"]),
        ("What is shown here?", []),
        ("dog dog, dog. Dog?", ["dog dog dog dog"]),
        ("", []),
    ],
)
def test_noun_phrases_are_what_questions_name(question: str, phrases: list[str]) -> None:
    assert noun_phrases(question) == phrases
    assert len(noun_phrases(" the ".join(f"thing{i}" for i in range(99)))) == 6


class Batch(dict):
    """Inputs that know no device."""

    def to(self, device: object) -> Batch:
        return self


def finding(boxes: list[tuple[tuple[float, ...], float]]) -> GroundSource:
    """A source whose detector finds given boxes."""
    asked = []

    class Processor:
        image_processor = SimpleNamespace(to_dict=dict)

        def __call__(self, images: Any, text: list[list[str]], return_tensors: str) -> Batch:
            asked.append((images.size, text))
            return Batch()

        def post_process_grounded_object_detection(self, outputs: object, **settings: Any) -> list[Any]:
            assert settings["target_sizes"] == [(48, 64)]
            found = {"scores": torch.tensor([score for _, score in boxes])}
            return [
                found | {"boxes": torch.tensor([b for b, _ in boxes]), "text_labels": ["dog"] * len(boxes)}
            ]

    class Detector(torch.nn.Linear):
        device = "cpu"

        def forward(self) -> None:
            return None

    source = GroundSource(Detector(1, 1), Processor())
    source.asked = asked  # type: ignore[attr-defined]
    return source


def test_cells_have_the_log_odds_of_the_best_of_the_first_boxes() -> None:
    boxes = [((0.0, 0.0, 8.0, 8.0), 0.5), ((0.0, 0.0, 16.0, 8.0), 0.25), ((-9.0, 40.0, 8.0, 99.0), 0.75)]
    weak = [((32.0, 16.0, 40.0, 24.0), 0.01)] * MAX_FOUND
    source = finding([*weak, *boxes])
    coupling = source.couple(source.view(noise(0)), "Where is the dog?", (6, 8))
    logits = coupling.logits
    assert logits[0, 0] == pytest.approx(0.0, abs=1e-5)
    assert logits[0, 1] == pytest.approx(-1.0986, abs=1e-3)
    assert logits[5, 0] == pytest.approx(1.0986, abs=1e-3)
    assert logits[3, 3] == FLOOR
    assert coupling.confidence == pytest.approx(0.75)
    assert [round(one.probability, 2) for one in coupling.findings[:3]] == [0.75, 0.5, 0.25]
    assert len(coupling.findings) == MAX_FOUND
    assert coupling.findings[0].box[0] == 0
    nothing = source.couple(source.view(noise(0)), "What is this?", (6, 8))
    assert nothing.confidence == 0
    assert (nothing.logits == FLOOR).all()
    assert source.asked == [((64, 48), [["dog"]])]  # type: ignore[attr-defined]


def test_models_open_from_folders_of_safetensors_alone(tmp_path: Path) -> None:
    model, processor = built("owlvit")
    model.save_pretrained(tmp_path)
    processor.save_pretrained(tmp_path)
    (source,) = open_relevance(f"ground:{tmp_path}").sources
    own = GroundSource(model, processor)
    maps = [one.couple(one.view(noise(1)), "Is the dog wet?", (6, 8)).logits for one in (source, own)]
    assert torch.equal(*maps)
    assert source.version == own.version
    with pytest.raises(ValueError, match="'ground' has no calibration"):
        open_relevance(f"guide+ground:{tmp_path}")
    pickled = tmp_path.rename(tmp_path.with_name("pickled"))
    (pickled / "model.safetensors").unlink()
    torch.save(model.state_dict(), pickled / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"can't be loaded .*safetensors"):
        open_ground(str(pickled))
    with pytest.raises(ValueError, match=r"'ground' needs a model: .* ground:openmmlab-community/mm_ground"):
        open_ground()
