"""A stand-in of the Hub on 127.0.0.1: the HTTP calls by which huggingface_hub makes, fills and reads a model.

Repositories are lists of commits, each a dict of files; large files come by the LFS calls, as from a client
without hf_xet. Reading is open but for private repositories; writing takes the one good token.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
import yaml
from huggingface_hub import constants
from transformers.utils import hub as transformers_hub

TOKEN = "hf_theGoodToken"
Files = dict[str, bytes]


@dataclass
class Hub:
    """What the stand-in holds.

    Attributes:
        commits: of each repository by name, hash and files of every commit, oldest first.
        private: names of those that only the token opens.
        blobs: large files by their SHA-256.
        calls: method and path of every request.
    """

    url: str = ""
    commits: dict[str, list[tuple[str, Files]]] = field(default_factory=dict)
    private: set[str] = field(default_factory=set)
    blobs: Files = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)

    def commit(self, name: str, files: Files) -> str:
        """Add a commit whose files are exactly these; returns its hash."""
        before = self.commits.setdefault(name, [])
        content = repr(
            (len(before), sorted((path, hashlib.sha1(data).digest()) for path, data in files.items()))
        )
        before.append((hashlib.sha1(f"{name} {content}".encode()).hexdigest(), dict(files)))
        return before[-1][0]

    def add_folder(self, name: str, folder: Path) -> str:
        """Add a commit with what is in a folder; returns its hash."""
        paths = [path for path in folder.rglob("*") if path.is_file()]
        return self.commit(name, {str(path.relative_to(folder)): path.read_bytes() for path in paths})

    def files(self, name: str, revision: str = "main") -> tuple[str, Files] | None:
        """Hash and files of a revision; None if there is none."""
        commits = self.commits[name]
        if revision == "main":
            return commits[-1] if commits else ("0" * 40, {})
        return next((commit for commit in commits if commit[0] == revision), None)


class Handler(BaseHTTPRequestHandler):
    """Answers one request; `hub` is set on the class that a server uses."""

    hub: Hub

    def log_message(self, format: str, *args: Any) -> None:  # quiet
        return

    def reply(self, status: int, body: bytes | dict | list = b"", **headers: str) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def refuse(self, status: int, code: str, message: str) -> None:
        self.reply(status, {"error": message}, X_Error_Code=code, X_Error_Message=message)

    @property
    def allowed(self) -> bool:
        return self.headers.get("Authorization") == f"Bearer {TOKEN}"

    def body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            chunks = []
            while size := int(self.rfile.readline(), 16):
                chunks.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(chunks)
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def parts(self) -> list[str]:
        path = unquote(urlsplit(self.path).path)
        self.hub.calls.append(f"{self.command} {path}")
        return path.strip("/").split("/")

    def repository(self, name: str, revision: str) -> tuple[str, Files] | None:
        """What is asked for, or None once it has been refused."""
        if name not in self.hub.commits or (name in self.hub.private and not self.allowed):
            self.refuse(401, "RepoNotFound", "Repository not found")
            return None
        found = self.hub.files(name, revision)
        if found is None:
            self.refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return found

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        match self.parts():
            case ["api", "models", user, repo, "tree", revision, *folder]:
                if found := self.repository(f"{user}/{repo}", revision):
                    files = {p: data for p, data in found[1].items() if p.startswith("/".join([*folder, ""]))}
                    if folder and not files:
                        self.refuse(404, "EntryNotFound", "no such folder")
                    else:
                        self.reply(200, [self.entry(path, data) for path, data in files.items()])
            case ["api", "models", user, repo, *rest]:
                if found := self.repository(f"{user}/{repo}", rest[-1] if rest else "main"):
                    siblings = [{"rfilename": path} for path in found[1]]
                    self.reply(
                        200, {"id": f"{user}/{repo}", "sha": found[0], "siblings": siblings, "tags": []}
                    )
            case [user, repo, "resolve", revision, *path]:
                found = self.repository(f"{user}/{repo}", revision)
                if not found:
                    return
                commit, files = found
                if (name := "/".join(path)) not in files:
                    self.refuse(404, "EntryNotFound", "Entry not found")
                    return
                digest = self.entry(name, files[name])["oid"]
                self.reply(200, files[name], X_Repo_Commit=commit, ETag=f'"{digest}"')
            case _:
                self.refuse(404, "", "no such call")

    @staticmethod
    def entry(path: str, data: bytes) -> dict[str, Any]:
        large = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
        known = {"type": "file", "path": path, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
        return known | ({"lfs": large} if path.endswith(".safetensors") else {})

    def do_PUT(self) -> None:
        oid = self.parts()[-1]
        data = self.body()
        assert hashlib.sha256(data).hexdigest() == oid
        self.hub.blobs[oid] = data
        self.reply(200)

    def do_POST(self) -> None:
        parts, body = self.parts(), self.body()
        if not self.allowed:
            self.refuse(401, "", "Invalid credentials in Authorization header")
            return
        match parts:
            case ["api", "repos", "create"]:
                asked = json.loads(body)
                name = f"{asked['organization']}/{asked['name']}"
                known = name in self.hub.commits
                self.hub.commits.setdefault(name, [])
                if asked.get("visibility") == "private":
                    self.hub.private.add(name)
                self.reply(409 if known else 200, {"url": f"{self.hub.url}/{name}"})
            case ["api", "validate-yaml"]:
                content = json.loads(body)["content"]
                assert isinstance(yaml.safe_load(content.split("---\n")[1]), dict)
                self.reply(200, {"errors": [], "warnings": []})
            case ["api", "models", _, _, "preupload", _]:
                files = [
                    {
                        "path": file["path"],
                        "uploadMode": "lfs" if file["path"].endswith(".safetensors") else "regular",
                        "shouldIgnore": False,
                    }
                    for file in json.loads(body)["files"]
                ]
                self.reply(200, {"files": files})
            case [_, _, "info", "lfs", "objects", "batch"]:
                objects = [
                    {**item, "actions": {"upload": {"href": f"{self.hub.url}/lfs/{item['oid']}"}}}
                    for item in json.loads(body)["objects"]
                ]
                self.reply(200, {"objects": objects, "transfer": "basic"})
            case ["api", "models", user, repo, "commit", "main"]:
                name = f"{user}/{repo}"
                files = dict(found[1]) if (found := self.hub.files(name)) else {}
                for line in body.splitlines():
                    action = json.loads(line)
                    value = action["value"]
                    if action["key"] == "file":
                        files[value["path"]] = base64.b64decode(value["content"])
                    elif action["key"] == "lfsFile":
                        files[value["path"]] = self.hub.blobs[value["oid"]]
                    elif action["key"] == "deletedFile":
                        del files[value["path"]]
                commit = self.hub.commit(name, files)
                self.reply(200, {"commitUrl": f"{self.hub.url}/{name}/commit/{commit}", "commitOid": commit})
            case _:
                self.refuse(404, "", "no such call")


@contextmanager
def serve(monkeypatch: pytest.MonkeyPatch, cache: Path) -> Iterator[Hub]:
    """Serve an empty Hub, and let huggingface_hub know no other, and no cache or token but in `cache`."""
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"hub": hub}))
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    settings = {
        "ENDPOINT": hub.url,
        "HUGGINGFACE_CO_URL_TEMPLATE": hub.url + "/{repo_id}/resolve/{revision}/{filename}",
        "HF_HUB_CACHE": str(cache),
        "HF_TOKEN_PATH": str(cache / "token"),
        "HF_HUB_DISABLE_XET": True,
        "HF_HUB_OFFLINE": False,
    }
    for name, value in settings.items():
        monkeypatch.setattr(constants, name, value)
    monkeypatch.setattr(transformers_hub, "_hf_api", None, raising=False)  # it keeps the address it had
    monkeypatch.delenv("HF_TOKEN", raising=False)
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
