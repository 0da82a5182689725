"""The app's public endpoint `/ask`: a question about an image or a clip, its answer and cost.

    from gradio_client import Client, handle_file
    Client("http://127.0.0.1:7860").predict(handle_file("page.png"), "What is the total?", api_name="/ask")

All other events of the page are private. A call stores nothing; it waits in the queue of the page's
questions.
"""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import Any, Self

import gradio as gr
from gradio.data_classes import ImageData

from arr_coc.app.asking import Stopped
from arr_coc.app.clips import open_source
from arr_coc.app.components import Plain, Upload
from arr_coc.app.lending import lend
from arr_coc.app.models import Models
from arr_coc.choose.budget import parse_budget
from arr_coc.model import ARRCOCModel
from arr_coc.trace.observe import machine

Text = str | None  # None: left out of a call
logger = logging.getLogger(__name__)


class Posted(ImageData):
    """The image of a call as uploaded file data, or nothing."""

    @classmethod
    def model_validate(cls, obj: Any, **more: Any) -> Self:
        """Check the value of a call; a `gr.Error` of one line for an address, a path or anything else."""
        if not (isinstance(obj, dict) and isinstance(obj.get("path"), str)):
            raise gr.Error(
                'the image is no uploaded file: upload it, and give {"path": what that answered, '
                '"meta": {"_type": "gradio.FileData"}} (gradio_client: handle_file)',
                print_exception=False,
            )
        return super().model_validate(obj, **more)


class PostedImage(Upload, metaclass=Plain):
    """A component that gives `/ask` its image parameter: uploaded file data, checked by `Posted`."""

    data_model = Posted


def publish(models: Models, **settings: Any) -> None:
    """Add the endpoint to the app being built; `settings` are those of the event, such as its queue."""

    def ask(
        image: Text, question: str, budget: Text = None, mode: Text = None, magnify: Text = None
    ) -> dict[str, Any]:
        """Answer a question about an image from the visual tokens that it needs.

        Args:
            image: an uploaded image or video file; an address is not fetched. What a clip may have, `clips`
                says.
            question: any text.
            budget: visual tokens to keep: a count ("64"), a fraction ("0.06") or "auto"; none: the
                model's own.
            mode: how the image is read, "full" for all tokens; none: the model's own.
            magnify: how many times finer kept cells are read, "1" to "3" or "auto"; none: no finer.

        Returns:
            `answer`; the cells `kept` of `total`, how many times finer they were read (`magnified`, or
            none), and the tokens `read`; `mode` that ran, and in `note` what wasn't done as asked for; `ms`
            by stage, and the `machine` that took them.
        """
        return answer(models, image, question, budget, mode, magnify)

    with gr.Row(visible=False):
        form = [
            PostedImage(label="image", type="filepath", sources=["upload"]),
            gr.Textbox(label="question"),
            gr.Textbox(None, label="budget"),
            gr.Textbox(None, label="mode"),
            gr.Textbox(None, label="magnify"),
        ]
        result, event = gr.JSON(label="answer"), gr.Button()
    event.click(ask, form, result, api_name="ask", **settings)


def answer(
    models: Models, image: Text, question: str, budget: Text, mode: Text, magnify: Text = None
) -> dict[str, Any]:
    """Answer a call of the endpoint with the first of `models`; `image` is the path of an uploaded file.

    `budget` is text for `parse_budget`, `magnify` for `parse_magnify`; None or "" mean the model's own.

    Raises:
        gr.Error: the request is refused or failed: one line without a path of this machine.
    """
    try:
        if not image:
            raise ValueError("there is no image: upload one, and give what the upload answered")
        allowed = parse_budget(budget) if budget else None
        options = {"budget": allowed, "mode": mode or None, "magnify": magnify or 1}
        return models.submit(partial(_answer, models, image, question, options)).result()
    except Stopped as error:
        raise gr.Error("the server ends", print_exception=False) from error
    except ValueError as error:
        message = " ".join(str(error).replace(image or "\n", Path(image or "").name).split())
        raise gr.Error(message, print_exception=False) from error
    except Exception as error:
        logger.exception("a question failed")
        message = f"that failed ({type(error).__name__}); the server's log has the reason"
        raise gr.Error(message, print_exception=False) from error


def _answer(
    models: Models, image: str, question: str, options: dict[str, Any], model: ARRCOCModel
) -> dict[str, Any]:

    def go_on(_: str) -> None:
        if models.closed:
            raise Stopped

    options = options | {"max_new_tokens": models.max_new_tokens}
    if models.lends:
        return lend(0, model, replied, image, question, options)
    return replied(model, image, question, options | {"on_text": go_on})


def replied(model: ARRCOCModel, image: str, question: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return what the endpoint returns for a question about an image file; `options` are those of
    `Session.ask`.
    """
    reply = model.session(open_source(image)).ask(question, **options)
    return {
        "answer": reply.text,
        "kept": reply.kept,
        "total": reply.total,
        "read": reply.read,
        "magnified": reply.magnified,
        "mode": reply.mode,
        "note": reply.note,
        "ms": {stage: round(value, 2) for stage, value in reply.ms.items()},
        "machine": machine(model),
    }
