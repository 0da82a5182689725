"""The models of a server, and the one thread that loads and runs them.

Everything that touches a model happens in that thread, one call after the other, so that answers of two
users never mix.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

from PIL import Image

from arr_coc.app.tab import Encoded

if TYPE_CHECKING:
    from arr_coc.model import ARRCOCModel

T = TypeVar("T")
WARM = (256, 256)
"""Size of the picture that a model is warmed up with."""


class Models:
    """One model or two, each loaded once, when it is first needed or by `start`.

    Args:
        sources: each a loaded model, a Hub name, a folder or "bundled".
        device: where models are loaded to, as `device.resolve_device` takes it.
        dtype: of their base models, as `device.resolve_dtype` takes it.
        allocator: an allocator of the first, by name; None: its own.
        guide: folder of another guide; None: the bundled one.
        relevance: what couples cells with a question in the first, as of `ARRCOCModel.from_pretrained`.
        max_new_tokens: where an answer is cut off.

    Attributes:
        guide: as above.
        encoded: the memory for encoded images.
        closed: the server ends; what runs must.
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
        self._settings: dict[str, Any] = {"device": device, "dtype": dtype, "guide": guide}
        self._thread = ThreadPoolExecutor(1, "arr-coc-model")
        self._loading: dict[int, Future[ARRCOCModel]] = {}
        self._lock = Lock()
        self._futures: WeakSet[Future[Any]] = WeakSet()
        self.encoded = Encoded()
        self.closed = False

    def __len__(self) -> int:
        return len(self._sources)

    def name(self, which: int, parts: int = 1) -> str:
        """The name of a model, for the page: of a folder so many last parts of its path."""
        source = self._sources[which]
        return folder_name(source, parts) if isinstance(source, str) else source.base_name

    def labels(self, first: str) -> tuple[str, str]:
        """Names that tell the two models apart: their folders, whether they are trained, or first and second.

        Args:
            first: the base model that the first one's trace names; a trace of yet another keeps its name.
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
        """Check that every model named is there, before anything waits for it.

        Args:
            hub: ask the Hub for names on it; False: check folders alone.

        Raises:
            ValueError: a folder that is no model or allocator, or a name that the Hub doesn't know.
        """
        from arr_coc.files.paths import is_local

        for which, source in enumerate(self._sources):
            if isinstance(source, str) and (hub or is_local(source)):
                check_source(source, None if which else self._allocator)

    def start(self) -> None:
        """Begin to load what isn't loaded; returns at once."""
        for which in range(len(self)):
            self._load(which)

    def ready(self, which: int = 0) -> bool:
        """Whether a question would be answered without loading first."""
        return which in self._loading and self._loading[which].done()

    def loaded(self, which: int = 0) -> ARRCOCModel:
        """A model that is `ready`.

        Raises:
            ValueError: it can't be loaded; the reason.
        """
        return self._loading[which].result()

    def submit(self, work: Callable[[ARRCOCModel], T], which: int = 0) -> Future[T]:
        """Call `work` with a model, after all that was submitted before.

        The result raises what `work` raised, or the ValueError for which the model can't be loaded.
        """
        loading = self._load(which)  # before it in the same thread, so that waiting for it takes no time
        future = self._thread.submit(lambda: work(loading.result()))
        self._futures.add(future)
        return future

    def busy(self, patience: float = 0.0) -> bool:
        """Whether something still runs after so many seconds, which keeps the process from ending."""
        running = [future for future in list(self._futures) if future.running()]
        return bool(running and wait(running, patience).not_done)

    def close(self) -> None:
        """Cancel what waits; what runs ends with its next token."""
        self.closed = True
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _load(self, which: int) -> Future[ARRCOCModel]:
        with self._lock:
            if which not in self._loading:
                own = (None, "auto") if which else (self._allocator, self._relevance)
                settings = self._settings | dict(zip(("allocator", "relevance"), own, strict=True))
                self._loading[which] = self._thread.submit(load, self._sources[which], settings)
                self._futures.add(self._loading[which])
            return self._loading[which]


def load(source: ARRCOCModel | str, settings: dict[str, Any]) -> ARRCOCModel:
    """A model as it is, or loaded by its name with these arguments of `from_pretrained`, and warm."""
    if not isinstance(source, str):
        return source
    from arr_coc.model import ARRCOCModel

    model = ARRCOCModel.from_pretrained(source, **settings)
    for mode in (None, "full"):  # the first call pays for what is set up once, which is no question's cost
        model.ask(Image.new("RGB", WARM), "?", mode=mode, max_new_tokens=1)
    return model


def check_source(name: str, allocator: str | None = None) -> None:
    """Check that a model can be loaded by a name, without loading it.

    Args:
        name: of the model.
        allocator: another allocator for it; None: its own.

    Raises:
        ValueError: a folder that is no model or allocator, or a name that the Hub doesn't know.
    """
    from arr_coc.files.hub import commit_of
    from arr_coc.files.paths import BUNDLED_NAME, is_local
    from arr_coc.store.checkpoint import check_model_folder, find

    source = find(name, allocator)
    if source.base == BUNDLED_NAME:
        return
    if is_local(source.base):
        check_model_folder(Path(source.base).expanduser())
    else:
        commit_of(source.base, source.revision)


def folder_name(name: str, parts: int = 1) -> str:
    """The last parts of a folder's path; any other name as it is."""
    folder = Path(name).expanduser()
    return "/".join(folder.resolve().parts[-parts:]) if name and folder.is_dir() else name
