"""An MCP server of the tests, over stdio: screenshots, and one of everything else that passes through."""

from __future__ import annotations

import asyncio
import io

import numpy as np
from mcp.server.mcpserver import Context, Image, MCPServer
from PIL import Image as Pictures
from PIL import ImageDraw

server = MCPServer("shots", version="7", instructions="Take screenshots.", log_level="ERROR")


def screen(*boxes: tuple[int, int, int, int], noise: bool = False) -> bytes:
    """A white page with black boxes, or one of noise, which is more than clients take."""
    if noise:
        pixels = np.random.default_rng(0).integers(0, 256, (720, 1280, 3)).astype(np.uint8)
        image = Pictures.fromarray(pixels)
    else:
        image = Pictures.new("RGB", (640, 416), "white")
    for box in boxes:
        ImageDraw.Draw(image).rectangle(box, fill="black")
    file = io.BytesIO()
    image.save(file, "PNG", compress_level=1)
    return file.getvalue()


@server.tool(structured_output=False)
def shot(x: int = -1, noise: bool = False) -> list[str | Image]:
    """A screenshot, with a box at x."""
    boxes = [(x, 100, x + 30, 130)] if x >= 0 else []
    return ["Taken.", Image(data=screen(*boxes, noise=noise), format="png")]


@server.tool(structured_output=False)
def say(text: str) -> str:
    """The text itself."""
    return text


@server.tool()
def count() -> dict[str, int]:
    """A value with a schema."""
    return {"count": 3}


@server.tool(structured_output=False)
def fail() -> str:
    """It fails."""
    raise RuntimeError("the tool failed")


@server.tool(structured_output=False)
async def work(context: Context) -> str:
    """It reports progress."""
    for step in range(3):
        await context.report_progress(step, 3, f"step {step}")
        await asyncio.sleep(0)
    return "done"


@server.resource("notes://today")
def notes() -> str:
    """A resource."""
    return 'the "image" of today'


@server.prompt()
def greet(name: str) -> str:
    """A prompt."""
    return f"Greet {name}."


if __name__ == "__main__":
    server.run("stdio")
