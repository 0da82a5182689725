"""Download named files from a repository on the Hub, and upload named files of a folder."""

# Not huggingface_hub's PyTorchModelHubMixin: it saves the base model too, leaves missing weights random
# (`strict=False`), and reads pickles where there are no safetensors. Nor its `hf_hub_download`, or the
# `from_pretrained` of a name: without a connection they try again for half a minute.

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from huggingface_hub import HfApi, snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, HTTPError
from huggingface_hub.utils import validate_repo_id

from arr_coc.files.atomic import one_line
from arr_coc.files.paths import BUNDLED_NAME, is_local

_LOG_IN = "log in with `hf auth login`"
LOCAL = "give a local model folder instead, or bundled for the bundled model"


def check_hub_name(name: str) -> None:
    """Raise a ValueError if the Hub doesn't allow a repository of this name."""
    try:
        validate_repo_id(name)
    except HFValidationError as error:
        raise ValueError(
            f"{name!r} is no name on the Hub ({one_line(error, 200)}); give USER/NAME"
        ) from error


def check_shared(name: str) -> None:
    """Raise a ValueError if others couldn't load a base model by this name."""
    if name != BUNDLED_NAME and is_local(name):
        raise ValueError(
            f"the base model {name!r} is on this disk alone, so nobody else could load the allocator; set "
            "model.base_name to the base model's name on the Hub"
        )


def commit_of(name: str, revision: str | None = None) -> str:
    """Return the commit hash of a branch, tag or hash (None: the newest); raise ValueError if unreachable."""
    folder = download(name, ["config.json"], revision)
    if not (folder / "config.json").is_file():
        raise ValueError(_unreachable(name, "it has no config.json", revision))
    return folder.name


def download(name: str, files: Sequence[str], revision: str | None = None, remedy: str = LOCAL) -> Path:
    """Download a repository's files (names or patterns) at one commit; return their folder (may be cached).

    Missing files are skipped. The Hub is asked once: without a connection the cache answers, or a ValueError
    whose message ends with `remedy`.

    Raises:
        ValueError: no such repository, no access or no connection.
    """
    try:
        return Path(snapshot_download(name, allow_patterns=list(files), revision=revision))
    except (HTTPError, OSError, HFValidationError) as error:
        access = f"{_LOG_IN} if it is private, " if is_refusal(error) else ""
        raise ValueError(_unreachable(name, one_line(error, 200), revision, access + remedy)) from error


def upload(
    folder: Path, name: str, files: Sequence[str], *, private: bool | None = None, token: str | None = None
) -> str:
    """Upload files of a folder to a model repository in one commit; return its address.

    Args:
        folder: has the files.
        name: USER/NAME of the repository, made if missing.
        files: names or patterns; matching files that the folder lacks are deleted from the repository.
        private: for a new repository; None: the account's default.
        token: with write access; None: that of `hf auth login`.

    Raises:
        ValueError: an invalid name, no write access, or no connection.
    """
    check_hub_name(name)
    api = HfApi(token=token, library_name="arr-coc")
    try:
        api.create_repo(name, exist_ok=True, private=private)
        commit = api.upload_folder(
            repo_id=name,
            folder_path=folder,
            allow_patterns=list(files),
            delete_patterns=list(files),
            commit_message="Add ARR-COC allocator",
        )
    except (HTTPError, OSError, RuntimeError, ValueError) as error:
        denied = is_refusal(error)
        remedy = f"{_LOG_IN}, or give a token that may write there" if denied else "try again later"
        raise ValueError(f"{name!r} can't be uploaded ({one_line(error, 200)}): {remedy}") from error
    return commit.commit_url


def is_refusal(error: BaseException) -> bool:
    """Return whether the Hub refused access (401 or 403)."""
    return isinstance(error, HfHubHTTPError) and error.response.status_code in (401, 403)


def _unreachable(name: str, reason: str, revision: str | None, remedy: str = LOCAL) -> str:
    """Return the message for a model that can't be downloaded."""
    what = f"model {name!r}" + (f" at revision {revision!r}" if revision else "")
    return f"{what} can't be reached or doesn't exist on the Hub ({reason}); {remedy}"
