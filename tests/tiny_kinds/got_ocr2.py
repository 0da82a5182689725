"""GOT-OCR 2: a square of cells for each picture, read by a tower with windows."""

from __future__ import annotations

from typing import Any

from tiny_families import template, text, words


def make() -> tuple[Any, Any]:
    from transformers import (
        GotOcr2Config,
        GotOcr2ImageProcessor,
        GotOcr2Processor,
        GotOcr2VisionConfig,
        Qwen2Config,
    )

    class Small(GotOcr2Processor):
        """The processor for pictures of 36 tokens, a number that every call says."""

        def __call__(self, *args: Any, **more: Any) -> Any:
            return super().__call__(*args, num_image_tokens=36, **more)

    tokens = words(image_pad_token="<imgpad>")
    tower = GotOcr2VisionConfig(
        hidden_size=32,
        output_channels=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        image_size=96,
        patch_size=4,
        initializer_range=0.2,
        window_size=7,
        global_attn_indexes=[1],
        mlp_dim=48,
    )
    config = GotOcr2Config(
        text_config=Qwen2Config(**text(vocab_size=len(tokens))),
        vision_config=tower,
        image_seq_length=36,
        image_token_index=tokens.convert_tokens_to_ids("<imgpad>"),
    )
    pictures = GotOcr2ImageProcessor(size={"height": 96, "width": 96})
    return config, Small(pictures, tokens, chat_template=template("<img><imgpad></img>\n"))
