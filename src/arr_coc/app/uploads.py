"""Uploads: components that give the path of a file as it came, and of none that was not uploaded."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import gradio as gr

from arr_coc.app.canvas import Plain

ADDRESS = r"(?i)[a-z][a-z0-9+.-]+://"


class Uploaded:
    """A component that gives the path of a file as it was uploaded, unopened.

    Gradio checks a path only where the request says that it is one of a file; anybody can leave that out.
    """

    GRADIO_CACHE: str

    def preprocess(self, payload: Any) -> str | None:
        """The path; a file that was not uploaded is refused."""
        if payload is None:
            return None
        if not payload.path:
            raise gr.Error("the file did not arrive whole: upload it again", print_exception=False)
        path = Path(payload.path).resolve()
        if not path.is_relative_to(Path(self.GRADIO_CACHE).resolve()):
            raise gr.Error("that file was not uploaded: upload it first", print_exception=False)
        return str(path)

    async def async_move_resource_to_block_cache(self, url_or_file_path: str | Path | None) -> str | None:
        """As Gradio's, of files alone: it would fetch an address."""
        if re.match(ADDRESS, str(url_or_file_path)):
            raise gr.Error("an address is not fetched: upload the file itself", print_exception=False)
        move: Any = super()
        return await move.async_move_resource_to_block_cache(url_or_file_path)


class Upload(Uploaded, gr.Image, metaclass=Plain):
    """An image upload, for `open_image` to check."""

    def get_block_name(self) -> str:
        """Gradio's front end knows it by this name."""
        return "image"


class UploadClip(Uploaded, gr.File, metaclass=Plain):
    """A place to drop a video file, for `clips.open_upload` to check."""

    def get_block_name(self) -> str:
        """Gradio's front end knows it by this name."""
        return "file"


class UploadTrace(Uploaded, gr.UploadButton, metaclass=Plain):
    """A button to upload a file of a trace, for `Trace.load` to check."""

    def get_block_name(self) -> str:
        """Gradio's front end knows it by this name."""
        return "uploadbutton"
