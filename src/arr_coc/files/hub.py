"""Download of named files from a repository on the Hub, and upload of named files of a folder.

commit_of(name, revision) -> hash
download(name, files, revision) -> folder      the files at one commit
upload(folder, name, files) -> address
"""

# Not huggingface_hub's PyTorchModelHubMixin: it saves the base model with the rest, leaves missing weights
# random (`strict=False`), and reads pickles where it finds no safetensors.

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from huggingface_hub import HfApi, hf_hub_download, snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, HTTPError
from huggingface_hub.utils import validate_repo_id

from arr_coc.files.atomic import one_line
from arr_coc.files.paths import BUNDLED_NAME, is_local

_LOG_IN = "log in with `hf auth login`"


def check_name(name: str) -> None:
    """Raise a ValueError if a name is not valid on the Hub."""
    try:
        validate_repo_id(name)
    except HFValidationError as error:
        raise ValueError(
            f"{name!r} is no name on the Hub ({one_line(error, 200)}); give USER/NAME"
        ) from error


def check_shared(name: str) -> None:
    """Raise a ValueError if nobody else could load a base model by this name."""
    if name != BUNDLED_NAME and is_local(name):
        raise ValueError(
            f"the base model {name!r} is on this disk alone, so nobody else could load the allocator; set "
            "model.base_name to the base model's name on the Hub"
        )


def commit_of(name: str, revision: str | None = None) -> str:
    """The hash of the commit of a repository's revision: a branch, a tag or a hash; None: the newest.

    Raises:
        ValueError: not there, not allowed or not reached, or the repository has no config.json.
    """
    try:
        return Path(hf_hub_download(name, "config.json", revision=revision)).parent.name
    except (HTTPError, OSError, HFValidationError) as error:
        raise ValueError(_unreachable(name, error, revision)) from error


def download(name: str, files: Sequence[str], revision: str | None = None) -> Path:
    """A folder with files of a model repository, all of one commit, downloaded or from the cache.

    `files` are names or patterns; those that the repository lacks are left out.

    Raises:
        ValueError: not there, not allowed or not reached.
    """
    try:
        return Path(snapshot_download(name, allow_patterns=list(files), revision=revision))
    except (HTTPError, OSError, HFValidationError) as error:
        raise ValueError(_unreachable(name, error, revision)) from error


def upload(
    folder: Path, name: str, files: Sequence[str], *, private: bool | None = None, token: str | None = None
) -> str:
    """Upload files of a folder to a model repository in one commit, and return the commit's address.

    Args:
        folder: the folder with the files.
        name: of the repository, USER/NAME; it is made if it is missing.
        files: names or patterns to upload; files of them in the repository that the folder lacks are deleted.
        private: whether a new repository is private; None: the account's default.
        token: one with write access; None: that of `hf auth login`.

    Raises:
        ValueError: a bad name, a token that may not write, or no connection.
    """
    check_name(name)
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
    """Whether the Hub refused access: 401 or 403."""
    return isinstance(error, HfHubHTTPError) and error.response.status_code in (401, 403)


def _unreachable(name: str, error: BaseException, revision: str | None = None) -> str:
    """The message for a model on the Hub that can't be downloaded."""
    what = f"model {name!r}" + (f" at revision {revision!r}" if revision else "")
    access = f"{_LOG_IN} if it is private, " if is_refusal(error) else ""
    return (
        f"{what} can't be reached or doesn't exist on the Hub ({one_line(error, 200)}); {access}"
        "give a local model folder instead, or bundled for the bundled model"
    )
