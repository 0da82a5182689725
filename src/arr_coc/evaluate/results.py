"""Result files under the name that they had before the package `arr_coc.results`."""

from __future__ import annotations

from arr_coc.results.files import (
    append_results,
    decode_kept,
    encode_kept,
    join_results,
    read_results,
    write_results,
)

__all__ = ["append_results", "decode_kept", "encode_kept", "join_results", "read_results", "write_results"]
