"""The contract with a base model: it is never changed, whatever is wrapped around it.

An allocator's LoRAs are at work inside a call and nowhere else. Outside, and in another thread, the base
model is what it was: its names and weights, its class and forward, its modules, what it saves, and every bit
of what it says; also after an exception, an interrupt, a second wrap. `unwrap()` hands back the object as it
came. Adapters of the user's own stay at work.

All through the public API.
"""

from __future__ import annotations

import copy
import hashlib
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModelForImageTextToText, AutoProcessor, PreTrainedModel, StoppingCriteria
from transformers.generation.streamers import BaseStreamer

from arr_coc import ARRCOCModel
from arr_coc.seam.gestalt import REMOVED
from near import near

FOLDER = Path(__file__).parent / "saved" / "v0.1"
KINDS = ("own", "partial", "coarse", "every")
"""Which LoRAs an allocator folder has: of the language model, of the vision tower, for gestalts, or all."""
LORA_FILES = ("adapter_config.json", "adapter_model.safetensors")
PLACES = {"own": (".",), "partial": ("partial",), "coarse": ("coarse",), "every": (".", "partial", "coarse")}
MODES = ("full", "prune", "sparse", "saccade", "compress", "weight")
MOVED = {
    "own": {"prune", "sparse", "saccade", "compress", "weight"},
    "partial": {"sparse", "saccade"},
    "coarse": {"saccade"},
    "every": {"prune", "sparse", "saccade", "compress", "weight"},
}
"""The modes in which a kind of LoRA is at work."""
QUESTION = "What is the total?"
BUDGET = 9
ROUNDS = 12

every_kind = pytest.mark.parametrize("kind", KINDS)


# ---- models, allocators -------------------------------------------------------------------------------


@cache
def loaded(attention: str = "sdpa") -> PreTrainedModel:
    return AutoModelForImageTextToText.from_pretrained(
        FOLDER / "base", dtype=torch.float32, attn_implementation=attention
    ).eval()


def fresh(attention: str = "sdpa") -> PreTrainedModel:
    """A base model of the test's own; loaded weights learn, as they do in transformers."""
    return copy.deepcopy(loaded(attention))


@cache
def processor() -> Any:
    return AutoProcessor.from_pretrained(FOLDER / "base")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Allocator folders by the LoRAs they have; "none": layer, stem and compressor alone."""
    made = {}
    for kind in (*KINDS, "none"):
        folder = made[kind] = tmp_path_factory.mktemp("allocators") / kind
        shutil.copytree(FOLDER / "allocator", folder)
        for place in {".", "partial", "coarse"} - set(PLACES.get(kind, ())):
            for name in LORA_FILES:
                (folder / place / name).unlink()
    return made


def wrap(base: PreTrainedModel, allocator: Path | None, **more: Any) -> ARRCOCModel:
    options = {"budget": BUDGET, "strict": True} | more
    return ARRCOCModel.wrap(base, processor(), allocator=allocator, **options)


@cache
def page() -> Image.Image:
    """600 cells: more than the 529 tokens of mode "saccade"."""
    with Image.open(FOLDER / "page.png") as image:
        return image.convert("RGB")


@cache
def small() -> Image.Image:
    """30 cells."""
    with Image.open(FOLDER / "pages" / "1.png") as image:
        return image.convert("RGB")


def image_for(mode: str | None) -> Image.Image:
    """The large one where a small one would have no gestalt, else the quick one."""
    return page() if mode == "saccade" else small()


def inputs_of(image: Image.Image) -> dict[str, Any]:
    """Ordinary processor inputs."""
    content = [{"type": "image"}, {"type": "text", "text": QUESTION}]
    turns = [{"role": "user", "content": content}]
    text = processor().apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
    return dict(processor()(text=[text], images=[[image]], return_tensors="pt"))


@torch.no_grad()
def logits(model: Any, **options: Any) -> Tensor:
    return model(**inputs_of(image_for(options.get("mode"))), **options).logits


# ---- what a base model is -----------------------------------------------------------------------------


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@torch.no_grad()
def snapshot(base: PreTrainedModel) -> dict[str, Any]:
    """All that can be told of a base model from outside, but for `flags`."""
    inputs = inputs_of(small())
    with tempfile.TemporaryDirectory() as folder:
        try:
            base.save_pretrained(folder)
        except ValueError as error:  # as transformers does with several active adapters
            saved: Any = str(error)
        else:
            saved = {path.name: digest(path.read_bytes()) for path in Path(folder).iterdir()}
    return {
        "type": type(base),
        "forward": base.__class__.forward,
        "own attributes": sorted(name for name in vars(base) if callable(vars(base)[name])),
        "modules": [(name, type(module)) for name, module in base.named_modules()],
        "weights": {
            name: (tensor.dtype, digest(tensor.contiguous().numpy().tobytes()))
            for name, tensor in base.state_dict().items()
        },
        "config": base.config.to_dict(),
        "attention": base.config._attn_implementation,
        "generation config": base.generation_config.to_dict(),
        "saved": saved,
        "logits": digest(base(**inputs).logits.numpy().tobytes()),
        "generated": base.generate(**inputs, max_new_tokens=4, do_sample=False).tolist(),
    }


def flags(base: PreTrainedModel) -> dict[str, Any]:
    """What `wrap` may set for as long as it lasts: freezing, evaluation mode, and hooks."""
    return {
        "hooks": {
            name: len(module._forward_hooks) + len(module._forward_pre_hooks)
            for name, module in base.named_modules()
        },
        "requires_grad": {name: parameter.requires_grad for name, parameter in base.named_parameters()},
        "training": {name: module.training for name, module in base.named_modules()},
    }


def assert_same(before: dict[str, Any], after: dict[str, Any]) -> None:
    different = [name for name in before if before[name] != after[name]]
    assert not different, f"of the base model, these are no longer as before: {', '.join(different)}"


def use(model: ARRCOCModel) -> None:
    """Every kind of call in every mode."""
    for mode in MODES:
        inputs, session = inputs_of(image_for(mode)), model.session(image_for(mode))
        with torch.no_grad():
            model(**inputs, mode=mode)
        model.generate(**inputs, mode=mode, max_new_tokens=2, do_sample=False)
        session.ask(QUESTION, mode=mode, max_new_tokens=2)
        if mode in ("prune", "sparse", "saccade"):
            session.look(QUESTION, mode=mode)
    with model.full(), torch.no_grad():
        model(**inputs_of(small()))


# ---- the base model is left alone ---------------------------------------------------------------------


@every_kind
class TestNeverChanged:
    def test_by_wrap(self, kind: str, folders: dict[str, Path]) -> None:
        base = fresh()
        before = snapshot(base)
        wrap(base, folders[kind])
        assert_same(before, snapshot(base))

    @pytest.mark.slow
    def test_by_calls_and_unwrap_hands_back_the_very_object(
        self, kind: str, folders: dict[str, Path]
    ) -> None:
        """As it came, flags too; and wrapped again it says what it said."""
        base = fresh()
        before, flagged = snapshot(base), flags(base)
        assert all(flagged["requires_grad"].values())
        model = wrap(base, folders[kind])
        expected = logits(model, mode="saccade")
        use(model)
        assert_same(before, snapshot(base))
        assert model.unwrap() is base
        assert_same(before | flagged, snapshot(base) | flags(base))
        assert torch.equal(logits(wrap(base, folders[kind]), mode="saccade"), expected)

    @pytest.mark.slow
    @pytest.mark.parametrize("mode", ["prune", "saccade"])
    def test_inside_the_call_of_another_thread(self, kind: str, mode: str, folders: dict[str, Path]) -> None:
        base = fresh()
        before = snapshot(base)
        session = wrap(base, folders[kind]).session(image_for(mode))
        inside, go_on = threading.Event(), threading.Event()

        def wait(_: str) -> None:
            inside.set()
            assert go_on.wait(60)

        other = threading.Thread(
            target=lambda: session.ask(QUESTION, mode=mode, max_new_tokens=3, on_text=wait), daemon=True
        )
        other.start()
        try:
            assert inside.wait(60)
            after = snapshot(base)
        finally:
            go_on.set()
            other.join(60)
        assert_same(before, after)
        assert_same(before, snapshot(base))

    @pytest.mark.slow
    def test_and_yet_the_lora_is_at_work(self, kind: str, folders: dict[str, Path]) -> None:
        """In its modes and in no other, so that the tests above are of something."""
        with_it, without = wrap(fresh(), folders[kind]), wrap(fresh(), folders["none"])
        moved = {
            mode for mode in MODES if not torch.equal(logits(with_it, mode=mode), logits(without, mode=mode))
        }
        assert moved == MOVED[kind]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "other"),
    [("own", "partial"), ("partial", "coarse"), ("coarse", "own"), ("every", "every"), ("every", "none")],
)
def test_a_second_wrap(kind: str, other: str, folders: dict[str, Path]) -> None:
    """Each wrapped model gives what it gives alone, and the base model is never changed."""
    base = fresh()
    before = snapshot(base)
    first = wrap(base, folders[kind])
    expected = {mode: logits(first, mode=mode) for mode in MODES}
    again = wrap(base, folders[other])
    alone = wrap(fresh(), folders[other])
    assert_same(before, snapshot(base))
    for mode in MODES:
        assert torch.equal(logits(again, mode=mode), logits(alone, mode=mode)), mode
        assert torch.equal(logits(first, mode=mode), expected[mode]), mode
    assert_same(before, snapshot(base))


def raise_inside(model: ARRCOCModel, mode: str, place: str, error: BaseException) -> None:
    """A call in which something of the caller's raises."""

    class Streamer(BaseStreamer):
        def put(self, value: Tensor) -> None:
            raise error

        def end(self) -> None:
            raise AssertionError("the first token has raised")

    class Criterion(StoppingCriteria):
        def __call__(self, input_ids: Tensor, scores: Tensor, **kwargs: Any) -> Any:
            raise error

    def fail(*_: Any) -> None:
        raise error

    inputs = inputs_of(image_for(mode))
    if place == "on_text":
        model.session(image_for(mode)).ask(QUESTION, mode=mode, max_new_tokens=2, on_text=fail)
    elif place == "streamer":
        model.generate(**inputs, mode=mode, max_new_tokens=2, streamer=Streamer())
    elif place == "stopping criterion":
        model.generate(**inputs, mode=mode, max_new_tokens=2, stopping_criteria=[Criterion()])
    else:
        hook = model.base.get_output_embeddings().register_forward_hook(fail)
        try:
            logits(model, mode=mode)
        finally:
            hook.remove()


@pytest.mark.slow
@pytest.mark.parametrize("place", ["on_text", "streamer", "stopping criterion", "layer"])
def test_an_exception_inside_a_call(place: str, folders: dict[str, Path]) -> None:
    base = fresh()
    before = snapshot(base)
    model = wrap(base, folders["every"])
    answers = {mode: logits(model, mode=mode) for mode in MODES}
    for error, mode in product((RuntimeError, KeyboardInterrupt), ("prune", "saccade")):
        with pytest.raises(error, match="raised inside"):
            raise_inside(model, mode, place, error("raised inside"))
        assert_same(before, snapshot(base))
    for mode in MODES:
        assert torch.equal(logits(model, mode=mode), answers[mode]), mode


@pytest.mark.slow
@every_kind
def test_flags_come_back_one_by_one(kind: str, folders: dict[str, Path]) -> None:
    """Half frozen, and in training mode but for one part."""
    base = fresh()
    for i, parameter in enumerate(base.parameters()):
        parameter.requires_grad_(i % 3 == 0)
    base.train()
    base.get_output_embeddings().eval()
    before = flags(base)
    model = wrap(base, folders[kind])
    logits(model, mode="saccade")
    assert model.unwrap() is base
    assert_same(before, flags(base))


# ---- two threads --------------------------------------------------------------------------------------


def run_together(jobs: Sequence[Callable[[], Any]], rounds: int = ROUNDS) -> None:
    """Each job, beside the others, gives bit for bit what it gives alone, in every round."""
    alone = [job() for job in jobs]
    assert all(same(job(), value) for job, value in zip(jobs, alone, strict=True)), "not even alone"
    barrier = threading.Barrier(len(jobs))
    wrong: list[str] = []

    def repeat(number: int) -> None:
        for i in range(rounds):
            if i % 4 == 0:  # in step, and then at whatever pace each of them has
                barrier.wait(120)
            try:
                if not same(jobs[number](), alone[number]):
                    wrong.append(f"job {number}, round {i}: another result than alone")
            except Exception as error:  # of any kind: none happens alone
                wrong.append(f"job {number}, round {i}: {type(error).__name__}: {error}")

    threads = [threading.Thread(target=repeat, args=(n,), daemon=True) for n in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive(), "the threads wait for each other"
    assert not wrong, f"{len(wrong)} of {rounds * len(jobs)} calls: {wrong[0]}"


def same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor):
        return a.shape == b.shape and torch.equal(a, b)
    return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True)) if _many(a) else a == b


def _many(value: Any) -> bool:
    return isinstance(value, list | tuple)


class TestTwoThreads:
    @pytest.fixture(autouse=True)
    def often(self) -> Iterator[None]:
        """Threads take turns far oftener than by default, so that a few rounds are enough."""
        before = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)
        yield
        sys.setswitchinterval(before)

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "modes", [("full", "sparse"), ("prune", "saccade"), ("full", "saccade"), ("sparse", "prune")]
    )
    def test_with_loras(self, modes: tuple[str, str], folders: dict[str, Path]) -> None:
        model = wrap(fresh(), folders["every"])
        run_together([lambda mode=mode: logits(model, mode=mode) for mode in modes])

    @pytest.mark.slow
    @pytest.mark.parametrize("mode", ["prune", "sparse", "saccade"])
    def test_the_bare_base_beside_a_call(self, mode: str, folders: dict[str, Path]) -> None:
        base = fresh()
        model = wrap(base, folders["every"])
        run_together([lambda: logits(base), lambda: logits(model, mode=mode)])

    @pytest.mark.slow
    @pytest.mark.parametrize("attention", ["eager", "sdpa"])
    @pytest.mark.parametrize("modes", [("full", "prune"), ("full", "sparse"), ("prune", "prune")])
    def test_where_an_untrained_model_looks(self, modes: tuple[str, str], attention: str) -> None:
        """The gaze needs attention maps, which the stock model in the other thread doesn't compute."""
        model = wrap(fresh(attention), None)

        def call(mode: str) -> list[Any]:
            with torch.no_grad():
                output = model(**inputs_of(small()), mode=mode)
            return [output.logits, *(allocation.keep for allocation in output.allocations)]

        run_together([lambda mode=mode: call(mode) for mode in modes])

    @pytest.mark.slow
    def test_full_in_one_and_a_budget_in_the_other(self, folders: dict[str, Path]) -> None:
        model = wrap(fresh(), folders["every"])

        def stock() -> Tensor:
            with model.full():
                return logits(model)

        run_together([stock, lambda: logits(model, budget=5)])
        assert logits(model, budget=5).shape[1] < logits(model, mode="full").shape[1]

    def test_full_lasts_as_long_as_its_block(self, folders: dict[str, Path]) -> None:
        """Another thread's block ends, or begins, within this one."""
        model, entered, leave = wrap(fresh(), folders["none"]), threading.Event(), threading.Event()

        def block() -> None:
            with model.full():
                entered.set()
                leave.wait(60)

        other = threading.Thread(target=block, daemon=True)
        other.start()
        assert entered.wait(60)
        pruned = logits(model)
        with model.full():
            leave.set()
            other.join(60)
            whole = logits(model)
        assert pruned.shape[1] < whole.shape[1]
        assert torch.equal(whole, logits(model, mode="full"))
        assert torch.equal(logits(model), pruned)

    @pytest.mark.slow
    def test_two_sessions_of_one_model(self, folders: dict[str, Path]) -> None:
        model = wrap(fresh(), folders["every"])
        sessions = [model.session(page()), model.session(small())]

        def ask(number: int, question: str) -> list[Any]:
            answers = [
                sessions[number].ask(question, mode=mode, max_new_tokens=3, budget=9) for mode in MODES
            ]
            return [[answer.text, answer.mode, answer.allocation.keep] for answer in answers]

        run_together([lambda: ask(0, "What is the total?"), lambda: ask(1, "Who?")], rounds=4)

    @pytest.mark.slow
    def test_one_session(self, folders: dict[str, Path]) -> None:
        session = wrap(fresh(), folders["every"]).session(page())

        def ask(question: str, mode: str) -> list[Any]:
            answer = session.ask(question, mode=mode, max_new_tokens=3)
            return [answer.text, answer.mode, answer.allocation.keep]

        run_together([lambda: ask("What is the total?", "sparse"), lambda: ask("Who?", "saccade")])


# ---- the user's own adapters --------------------------------------------------------------------------

NAMES = {"default": ("default",), "two": ("mine", "other")}  # the name that peft gives by itself, and several
every_name = pytest.mark.parametrize("names", NAMES.values(), ids=NAMES)


def add_own(base: PreTrainedModel, names: Sequence[str]) -> None:
    """Adapters of the user's own, which have learned something and are all active."""
    for seed, name in enumerate(names):
        targets = r".*language_model.*\.(q_proj|v_proj)" if seed == 0 else r".*language_model.*\.up_proj"
        base.add_adapter(LoraConfig(r=3, lora_alpha=6, target_modules=targets), name)
        generator = torch.Generator().manual_seed(10 + seed)
        for place, parameter in base.named_parameters():
            if f".{name}." in place:
                with torch.no_grad():
                    parameter.copy_(0.2 * torch.randn(parameter.shape, generator=generator))
    base.set_adapter(list(names))


def merged(base: PreTrainedModel, names: Sequence[str]) -> PreTrainedModel:
    """A model without adapters whose weights are those of `base` with its adapters added in."""
    plain, parts = fresh(), dict(base.named_parameters())
    weights = dict(plain.named_parameters())
    for place in parts:
        for name in names:
            if place.endswith(f".lora_A.{name}.weight"):
                where = place.removesuffix(f".lora_A.{name}.weight")
                down, up = parts[place], parts[f"{where}.lora_B.{name}.weight"]
                with torch.no_grad():
                    weights[f"{where}.weight"].add_(2.0 * up @ down)
    return plain


@every_name
class TestAdaptersOfTheUser:
    def test_full_is_the_bare_base_with_them(self, names: tuple[str, ...], folders: dict[str, Path]) -> None:
        base = fresh()
        plain = logits(base)
        add_own(base, names)
        bare = logits(base)
        assert not torch.equal(bare, plain)
        model = wrap(base, folders["every"])
        assert torch.equal(logits(model, mode="full"), bare)
        assert torch.equal(logits(base), bare)

    @pytest.mark.slow
    @pytest.mark.parametrize("kind", ["every", "none"])
    def test_ours_is_at_work_beside_them(
        self, names: tuple[str, ...], kind: str, folders: dict[str, Path]
    ) -> None:
        """In every mode it is as if the user's were merged into the weights."""
        base = fresh()
        add_own(base, names)
        other = wrap(merged(base, names), folders[kind])
        model = wrap(base, folders[kind])
        for mode in MODES:
            with torch.no_grad():
                one, two = (m(**inputs_of(image_for(mode)), mode=mode) for m in (model, other))
            for a, b in zip(one.allocations, two.allocations, strict=True):
                assert torch.equal(a.keep, b.keep), mode
            assert near(one.logits, two.logits), mode

    @pytest.mark.slow
    def test_the_base_is_left_alone(self, names: tuple[str, ...], folders: dict[str, Path]) -> None:
        base = fresh()
        add_own(base, names)
        before = snapshot(base) | flags(base)
        active = list(base.active_adapters())
        model = wrap(base, folders["every"])
        use(model)
        assert_same({k: v for k, v in before.items() if k not in flags(base)}, snapshot(base))
        assert list(base.active_adapters()) == active == list(names)
        assert set(base.peft_config) == set(names)
        assert model.unwrap() is base
        assert_same(before, snapshot(base) | flags(base))

    @pytest.mark.parametrize("kind", ["every", "none"])
    def test_only_ours_is_saved(
        self, names: tuple[str, ...], kind: str, folders: dict[str, Path], tmp_path: Path
    ) -> None:
        base = fresh()
        add_own(base, names)
        wrap(base, folders[kind]).save_pretrained(tmp_path / "saved")
        files = {path.relative_to(tmp_path / "saved") for path in (tmp_path / "saved").rglob("*.*")}
        ours = {path.relative_to(folders[kind]) for path in folders[kind].rglob("*.*")}
        ours -= {Path(f"{name}.safetensors") for name in REMOVED}  # which aren't read
        assert files - {Path("README.md")} == ours
        for path in ours:
            if path.suffix == ".safetensors":
                one, two = load_file(tmp_path / "saved" / path), load_file(folders[kind] / path)
                assert one.keys() == two.keys(), path
                assert all(torch.equal(one[name], two[name]) for name in one), path


# ---- videos -------------------------------------------------------------------------------------------


def video() -> dict[str, Any]:
    """A prompt with a video of one frame pair and 2 x 2 cells, and no image."""
    tokens = processor().tokenizer
    pad, start, end = tokens.convert_tokens_to_ids(["<|video_pad|>", "<|vision_start|>", "<|vision_end|>"])
    words = tokens("What?", add_special_tokens=False)["input_ids"]
    ids = torch.tensor([[start, *[pad] * 4, end, *words]])
    pixels = torch.randn(16, 3 * 2 * 4 * 4, generator=torch.Generator().manual_seed(0))
    return {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "mm_token_type_ids": 2 * (ids == pad).long(),
        "pixel_values_videos": pixels,
        "video_grid_thw": torch.tensor([[1, 4, 4]]),
    }


class TestVideos:
    @torch.no_grad()
    @pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "full"])
    def test_they_are_read_in_every_mode(self, mode: str, folders: dict[str, Path]) -> None:
        model = wrap(fresh(), folders["none"])
        output = model(**video(), mode=mode)
        assert output.allocation.grid == (1, 2, 2)
        assert not output.fallback
        options = {"max_new_tokens": 2, "do_sample": False}
        length = video()["input_ids"].shape[1]
        assert model.generate(**video(), mode=mode, **options).shape[1] == length + 2

    @pytest.mark.slow
    @torch.no_grad()
    def test_full_is_the_stock_model(self, folders: dict[str, Path]) -> None:
        model, stock = wrap(fresh(), folders["every"]), fresh()
        assert torch.equal(model(**video(), mode="full").logits, stock(**video()).logits)
        options = {"max_new_tokens": 2, "do_sample": False}
        assert torch.equal(
            model.generate(**video(), mode="full", **options), stock.generate(**video(), **options)
        )
