"""The models of a server, and the single thread that loads and runs them, one call after the other."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar
from weakref import WeakSet

from PIL import Image

from arr_coc.app.lending import lends, lent_call
from arr_coc.app.state import EncodedMemory
from arr_coc.files.hub import commit_of
from arr_coc.files.paths import is_local
from arr_coc.model import ARRCOCModel
from arr_coc.store.checkpoint import check_model_folder, find

T = TypeVar("T")
WARM = (256, 256)  # width and height in px of the picture that warms a model up


class Models:
    """One or two models, each loaded once: when first needed, or by `start`.

    `sources` are loaded models, Hub names, folders or "bundled"; the other arguments are those of
    `build_app`, `allocator` and `relevance` for the first model only. `closed` is set when the server ends,
    and running work must. `lends`: a GPU is lent for single calls (`lending`), so models stay on the CPU.
    """

    def __init__(
        self,
        *sources: ARRCOCModel | str,
        device: str = "auto",
        dtype: str | None = None,
        allocator: str | None = None,
        guide: Path | None = None,
        relevance: str = "auto",
        max_new_tokens: int = 32,
    ) -> None:
        self._sources, self._allocator, self.guide = sources, allocator, guide
        self.max_new_tokens, self._relevance = max_new_tokens, relevance
        self.lends = lends()
        if self.lends:
            lent_call()
        device = "cpu" if self.lends else device
        self._settings: dict[str, Any] = {"device": device, "dtype": dtype, "guide": guide}
        self._thread = ThreadPoolExecutor(1, "arr-coc-model")  # one thread: answers of two users never mix
        self._loading: dict[int, Future[ARRCOCModel]] = {}
        self._lock = Lock()
        self._futures: WeakSet[Future[Any]] = WeakSet()
        self.encoded = EncodedMemory()
        self.closed = False

    def __len__(self) -> int:
        return len(self._sources)

    def name(self, which: int, parts: int = 1) -> str:
        """Return the model's name for the page; for a folder the last `parts` of its path."""
        source = self._sources[which]
        return folder_name(source, parts) if isinstance(source, str) else source.base_name

    def labels(self, first: str) -> tuple[str, str]:
        """Names that tell the two models apart: folders, trained or not, or first and second.

        `first` is the base model named by a trace of the first; a trace of any other model keeps its name.
        """
        futures = [self._loading.get(i) for i in range(2)]
        loaded = [f.result() if f and f.done() and not f.exception() else None for f in futures]
        if loaded[0] is not None and folder_name(loaded[0].base_name) != first:
            return first, self.name(1)
        for parts in (1, 2):
            names = self.name(0, parts), self.name(1, parts)
            if names[0] != names[1]:
                return names
        marks = ["untrained" if model and not model.layer.trained else "trained" for model in loaded]
        marks = marks if marks[0] != marks[1] else ["first", "second"]
        return f"{names[0]} ({marks[0]})", f"{names[1]} ({marks[1]})"

    def check(self, hub: bool = True) -> None:
        """Raise a ValueError if a named model doesn't exist; without `hub`, only local ones are checked."""
        for which, source in enumerate(self._sources):
            if isinstance(source, str) and (hub or is_local(source)):
                check_model(source, None if which else self._allocator)

    def start(self) -> None:
        """Begin to load all models in the background."""
        for which in range(len(self)):
            self._load(which)

    def ready(self, which: int = 0) -> bool:
        """Return whether loading has finished, or failed."""
        return which in self._loading and self._loading[which].done()

    def loaded(self, which: int = 0) -> ARRCOCModel:
        """Return the loaded model, once `ready`; a ValueError if it couldn't be loaded."""
        return self._loading[which].result()

    def submit(self, work: Callable[[ARRCOCModel], T], which: int = 0) -> Future[T]:
        """Queue `work(model)`; its future raises a ValueError if the model can't be loaded."""
        loading = self._load(which)  # queued before it in the same thread: no deadlock
        context = copy_context()  # of the caller: ZeroGPU reads there whose request it is
        future = self._thread.submit(lambda: context.run(lambda: work(loading.result())))
        self._futures.add(future)
        return future

    def busy(self, patience: float = 0.0) -> bool:
        """Return whether work still runs after `patience` seconds; it would keep the process from ending."""
        running = [future for future in list(self._futures) if future.running()]
        return bool(running and wait(running, patience).not_done)

    def close(self) -> None:
        """Cancel waiting work; running work ends at its next token."""
        self.closed = True
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _load(self, which: int) -> Future[ARRCOCModel]:
        with self._lock:
            if which not in self._loading:
                own = (None, "auto") if which else (self._allocator, self._relevance)
                settings = self._settings | dict(zip(("allocator", "relevance"), own, strict=True))
                warm = not self.lends  # nothing of it lasts beyond a lent call
                self._loading[which] = self._thread.submit(load, self._sources[which], settings, warm)
                self._futures.add(self._loading[which])
            return self._loading[which]


def load(source: ARRCOCModel | str, settings: dict[str, Any], warm: bool = True) -> ARRCOCModel:
    """Return a loaded model itself, or one loaded by name with `settings` of `from_pretrained`, and warmed
    up.
    """
    if not isinstance(source, str):
        return source

    model = ARRCOCModel.from_pretrained(source, **settings)
    for mode in (None, "full") if warm else ():  # the first call pays one-time set-up
        model.ask(Image.new("RGB", WARM), "?", mode=mode, max_new_tokens=1)
    return model


def check_model(name: str, allocator: str | None = None) -> None:
    """Raise a ValueError unless a model, and an `allocator` for it, exist; neither is loaded."""
    from arr_coc.files.paths import BUNDLED_NAME, is_local

    source = find(name, allocator)
    if source.base == BUNDLED_NAME:
        return
    if is_local(source.base):
        check_model_folder(Path(source.base).expanduser())
    else:
        commit_of(source.base, source.revision)


def folder_name(name: str, parts: int = 1) -> str:
    """Return the last `parts` of a folder's path; any other name unchanged."""
    folder = Path(name).expanduser()
    return "/".join(folder.resolve().parts[-parts:]) if name and folder.is_dir() else name
