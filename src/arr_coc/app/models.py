"""The models of a server, and the one thread that loads and runs them.

Everything that touches a model happens in that thread, one call after the other, so that answers of two
users never mix.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from arr_coc.model import ARRCOCModel

T = TypeVar("T")


class Models:
    """One model or two, each loaded once, when it is first needed or by `start`.

    Args:
        sources: each a loaded model, a Hub name, a folder or "bundled".
        device: where models are loaded to, as `device.resolve_device` takes it.
        dtype: of their base models, as `device.resolve_dtype` takes it.
    """

    def __init__(self, *sources: ARRCOCModel | str, device: str = "auto", dtype: str | None = None) -> None:
        self._sources = sources
        self._settings: dict[str, Any] = {"device": device, "dtype": dtype}
        self._thread = ThreadPoolExecutor(1, "arr-coc-model")
        self._loading: dict[int, Future[ARRCOCModel]] = {}
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._sources)

    def name(self, which: int) -> str:
        """The name of a model, for the page."""
        source = self._sources[which]
        return source if isinstance(source, str) else source.base_name

    def start(self) -> None:
        """Begin to load what isn't loaded; returns at once."""
        for which in range(len(self)):
            self._load(which)

    def ready(self, which: int = 0) -> bool:
        """Whether a question would be answered without loading first."""
        return which in self._loading and self._loading[which].done()

    def submit(self, work: Callable[[ARRCOCModel], T], which: int = 0) -> Future[T]:
        """Call `work` with a model, after all that was submitted before.

        The result raises what `work` raised, or the ValueError for which the model can't be loaded.
        """
        loading = self._load(which)  # before it in the same thread, so that waiting for it takes no time
        return self._thread.submit(lambda: work(loading.result()))

    def close(self) -> None:
        """Cancel what waits; what runs is finished."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _load(self, which: int) -> Future[ARRCOCModel]:
        with self._lock:
            if which not in self._loading:
                self._loading[which] = self._thread.submit(load, self._sources[which], self._settings)
            return self._loading[which]


def load(source: ARRCOCModel | str, settings: dict[str, Any]) -> ARRCOCModel:
    """A model as it is, or loaded by its name with these arguments of `from_pretrained`."""
    if not isinstance(source, str):
        return source
    from arr_coc.model import ARRCOCModel

    return ARRCOCModel.from_pretrained(source, **settings)
