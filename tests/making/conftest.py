"""The bundled model's tokenizer, embeddings and random weights, built once."""

from __future__ import annotations

import pytest

from making import bundled
from making.words import build_embeddings, build_tokenizer


@pytest.fixture(scope="session")
def tokenizer():
    return build_tokenizer()


@pytest.fixture(scope="session")
def embeddings(tokenizer):
    return build_embeddings(tokenizer, bundled.DIM)


@pytest.fixture(scope="session")
def model(tokenizer, embeddings):
    return bundled.build_model(tokenizer, embeddings).eval()
