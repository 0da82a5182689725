"""The commands `proxy` and `mcp`: the choice for any chat API, and for agents."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Annotated

import typer

from arr_coc.cli import options, terminal
from arr_coc.files.plugins import install_line
from arr_coc.guide import GUIDE

PACKAGES = ("starlette", "uvicorn", "httpx", "prometheus_client", "cachetools")  # of the extra `proxy`


def proxy(
    upstream: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Address of the server that answers, local or an API. Not given: only LiteLLM and Open "
            "WebUI are served, which call servers of their own.",
        ),
    ] = None,
    tokens: Annotated[
        int, typer.Option(min=1, metavar="N", help="Visual tokens that each picture may cost.")
    ] = 400,
    rule: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="RULE",
            help="How the model counts a picture's tokens: gpt-5, claude, gemini, qwen, gemma-4, ... or N, "
            "the side in px of the square that a token stands for. Not given: guessed from each request's "
            "model.",
        ),
    ] = None,
    layout: Annotated[
        str, typer.Option(metavar="NAME", help="How parts are laid out: auto, crops, strip, ... as in crop.")
    ] = "auto",
    relevance: options.Relevance = GUIDE,
    sure: Annotated[
        float,
        typer.Option(
            min=0,
            max=1,
            metavar="0.5",
            help="The least probability that a picture holds what is asked for. Below it the whole picture "
            "is sent, as small as its print stays legible.",
        ),
    ] = 0.5,
    readable: options.Readable = options.READABLE,
    device: options.GuideDevice = "cpu",
    host: options.Host = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, metavar="N", help="Where to listen; 0: anywhere that is free.")
    ] = 8080,
    allow_host: options.AllowHost = None,
    workers: Annotated[
        int, typer.Option(min=1, max=64, metavar="N", help="Pictures that are chosen from at a time.")
    ] = 2,
    screens: options.Screens = "unchanged",
    ca: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Certificates that are trusted beside the usual ones (or those of SSL_CERT_FILE), as PEM.",
        ),
    ] = None,
    pictures: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="The most pictures that the server takes in a request, its history's among them. Not given: "
            "what is known of the server.",
        ),
    ] = None,
    traces: Annotated[
        int,
        typer.Option(
            min=0,
            max=10_000,
            metavar="N",
            help="Requests that the page of requests shows, from memory; 0: none.",
        ),
    ] = 100,
) -> None:
    """Stand between a client and a chat API, and send only the parts of pictures that the questions need.

    It changes pictures in OpenAI's chat completions and responses, Anthropic's Messages and Ollama's chat.
    Everything else passes byte for byte. The page /arr_coc/requests shows what was sent; /arr_coc/metrics has
    counters.
    """
    options.check_port(port)
    if not all(map(find_spec, PACKAGES)):
        raise ValueError(f"the proxy needs packages that are not installed: {install_line('proxy')}")
    # Waiting threads sleep, for a model may want the same cores. Read when torch is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    with terminal.starting(False):
        from arr_coc.guide.guide import load_guide
        from arr_coc.proxy.guardrail import PATH as GUARDRAIL
        from arr_coc.proxy.packing import Packer
        from arr_coc.proxy.server import Proxy, ProxySettings, read_trust, read_upstream, serve

        if upstream is not None:
            read_upstream(upstream)  # before anything is loaded
        read_trust(ca)
        guide = load_guide(device=device)
        packer = Packer(workers, guide, relevance=relevance, sure=sure, readable=readable)
        settings = ProxySettings(upstream, tokens, rule, layout, traces, ca, pictures, screens)
        made = Proxy(settings, packer, host, allow_host or (), terminal.log)

    def show(address: str) -> None:
        behind = ("upstream", upstream) if upstream is not None else ("for gateways", f"{address}{GUARDRAIL}")
        rows = [("proxy", address), behind, ("requests", f"{address}/arr_coc/requests")]
        terminal.print_rows([*rows, ("", "Ctrl-C ends it")])

    serve(made, host, port, show)


def mcp(
    folders: Annotated[
        list[str] | None, typer.Argument(metavar="FOLDER...", help="Folders whose pictures may be opened.")
    ] = None,
    rule: Annotated[
        str,
        typer.Option(
            "--for", metavar="RULE", help="How the agent's model counts a picture's tokens, as in crop."
        ),
    ] = "32",
    around: Annotated[
        str | None,
        typer.Option(
            metavar="COMMAND",
            help="In place of folders: the command of another MCP server. Everything passes unchanged, but "
            "of screenshots that its tools return only what is new.",
        ),
    ] = None,
    screens: options.Screens = "unchanged",
) -> None:
    """Give an agent tools that find, read and show parts of pictures (MCP over stdio).

    The agent starts this command by a line of its settings. Only files below the folders are opened. With
    --around it starts another MCP server instead, and makes the screenshots of that cost less.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    if around is not None:
        if folders:
            raise ValueError("folders and --around are both given: start one server for each")
        from arr_coc.mcp_around import run_around

        raise typer.Exit(run_around(around, screens, rule))
    if not folders:
        raise ValueError('no folder is named: give one, or --around "COMMAND" of another MCP server')
    from arr_coc.mcp import Folders, build_server, require_mcp

    require_mcp()
    Folders(folders)  # refused before anything is loaded
    build_server(folders, rule).run("stdio")
